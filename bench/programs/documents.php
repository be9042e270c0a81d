<?php
// SPDX-License-Identifier: BSD-2-Clause
// Reads documents of JSON, changes them and writes them. usage: documents.php ROUNDS
$documents = [];
for ($i = 0; $i < 50; $i++)
	$documents[] = json_encode(['id' => $i, 'name' => "Document $i", 'text' => str_repeat("a line of text, \"$i\"\n", 20),
		'points' => array_map(fn($n) => ['x' => $n * 0.5, 'y' => $n * $n, 'label' => "p$n"], range(1, 40)),
		'flags' => ['new' => $i % 2 == 0, 'size' => $i * 1000, 'owner' => null]]);
$bytes = 0;
for ($round = 0; $round < (int)$argv[1] * 10; $round++)
	foreach ($documents as $text) {
		$document = json_decode($text, true);
		$document['flags']['round'] = $round;
		$document['sum'] = array_sum(array_column($document['points'], 'y'));
		$bytes += strlen(json_encode($document));
	}
echo $bytes, "\n";
