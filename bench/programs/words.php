<?php
// SPDX-License-Identifier: BSD-2-Clause
// Builds indexes of made-up words. usage: words.php ROUNDS
function index(): array
{
	$places = [];
	for ($place = 0; $place < 20000; $place++)
		$places['a word that is made up, ' . $place * 7919 % 15013][] = $place;
	return $places;
}

$sum = 0;
for ($round = 0; $round < (int)$argv[1]; $round++) {
	foreach (index() as $word => $found)
		$sum += strlen(strtoupper($word) . implode(',', $found));
	$sum += $round;
}
echo $sum, "\n";
