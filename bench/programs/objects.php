<?php
// SPDX-License-Identifier: BSD-2-Clause
// Makes objects, groups and sorts them. usage: objects.php ROUNDS
class Order
{
	function __construct(public int $id, public string $customer, public float $amount, public array $lines) {}

	function total(): float
	{
		$total = 0;
		foreach ($this->lines as [$count, $price])
			$total += $count * $price;
		return $total + $this->amount;
	}
}

$sum = 0;
for ($round = 0; $round < (int)$argv[1]; $round++) {
	$orders = [];
	for ($i = 0; $i < 3000; $i++)
		$orders[] = new Order($i, 'customer ' . $i * 7919 % 211, $i % 97, [[1, 2.5], [$i % 5, 3.0]]);
	usort($orders, fn($a, $b) => $b->total() <=> $a->total() ?: $a->id <=> $b->id);
	$groups = [];
	foreach ($orders as $order)
		$groups[$order->customer][] = $order;
	ksort($groups);
	foreach ($groups as $name => $group)
		$sum += array_sum(array_map(fn($order) => $order->total(), $group)) + strlen($name);
}
echo $sum, "\n";
