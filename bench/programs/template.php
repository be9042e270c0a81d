<?php
// SPDX-License-Identifier: BSD-2-Clause
// Renders pages from a template, as sites do. usage: template.php ROUNDS
class Page
{
	private array $blocks = [];

	function __construct(private string $title) {}

	function row(array $item): string
	{
		return sprintf('<tr class="%s"><td>%s</td><td>%.2f</td><td>%s</td></tr>', $item['stock'] ? 'in' : 'out',
			htmlspecialchars($item['name']), $item['price'], implode(', ', array_map('ucfirst', $item['tags'])));
	}

	function add(string $name, array $items): void
	{
		$this->blocks[$name] = implode("\n", array_map($this->row(...), $items));
	}

	function render(string $template): string
	{
		return preg_replace_callback('/\{\{ *(\w+) *\}\}/', fn($found) => $found[1] == 'title'
			? htmlspecialchars($this->title) : $this->blocks[$found[1]] ?? '', $template);
	}
}

$items = [];
for ($i = 0; $i < 60; $i++)
	$items[] = ['name' => "Item <$i> & more", 'price' => $i * 1.25, 'stock' => $i % 3,
		'tags' => ['blue', 'number ' . $i % 7, 'sale']];
$template = str_repeat("<h1>{{ title }}</h1>\n<table>{{ first }}</table><p>a text that stays as it is</p><table>{{ second }}</table>\n", 3);
$bytes = 0;
for ($round = 0; $round < (int)$argv[1] * 100; $round++) {
	$page = new Page("Round $round");
	$page->add('first', array_slice($items, 0, 30));
	usort($items, fn($a, $b) => $a['stock'] <=> $b['stock'] ?: strcmp($a['name'], $b['name']));
	$page->add('second', array_filter($items, fn($item) => $item['price'] > 30));
	$bytes += strlen($page->render($template));
}
echo $bytes, "\n";
