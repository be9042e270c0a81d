<?php
/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls malloc() from all kinds of places, and says by debug_backtrace() which these are. */
namespace Places;

use FFI;

[, $dump, $count] = $argv;
$libc = FFI::cdef('void *malloc(size_t size); void free(void *block);', 'libc.so.6');
$told = [];

function oracle_block(int $size)
{
	global $libc, $told;
	$block = $libc->malloc($size); $trace = debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS); $here = __LINE__;
	$libc->free($block);
	$names = [];
	foreach ($trace as $i => $call) {
		$name = isset($call['class']) ? strstr($call['class'] . "\0", "\0", true) . '::' . $call['function'] : $call['function'];
		$names[] = in_array($name, ['include', 'require', 'include_once', 'require_once', 'eval']) ? '{main}' : $name;
	}
	if (isset($trace[count($trace) - 1]['line'])) /* else the interpreter has called it */
		$names[] = '{main}';
	$stack = '';
	foreach ($names as $i => $name) {
		$line = $i ? $trace[$i - 1]['line'] ?? 0 : $here;
		$stack = "$name:$line;" . $stack;
	}
	$told[$stack][0] = ($told[$stack][0] ?? 0) + 1;
	$told[$stack][1] = ($told[$stack][1] ?? 0) + $size;
}

function save(string $path)
{
	global $told;
	$file = fopen($path, 'w');
	foreach ($told as $stack => [$blocks, $bytes])
		fwrite($file, "$blocks $bytes $stack\n");
	fclose($file);
}

interface Shape
{
	function area(int $n);
}

abstract class Base
{
	public $kept = [];

	function __construct(int $n)
	{
		oracle_block($n);
	}

	function __destruct()
	{
		oracle_block(700);
	}

	static function made(int $n)
	{
		oracle_block($n); return new static($n);
	}
}

class Square extends Base implements Shape
{
	function area(int $n)
	{
		oracle_block($n);
		return parent::made($n);
	}

	function __call($name, $arguments)
	{
		oracle_block($arguments[0]);
	}

	static function __callStatic($name, $arguments)
	{
		oracle_block($arguments[0]);
	}

	function __get($name)
	{
		oracle_block(24);
		return 1;
	}

	function __toString()
	{
		oracle_block(32);
		return 'square';
	}

	function __invoke($n)
	{
		oracle_block($n);
		return $n;
	}
}

class Table implements \ArrayAccess, \IteratorAggregate, \Countable
{
	function offsetExists($at): bool { oracle_block(40); return true; }
	function offsetGet($at): mixed { oracle_block(41); return $at; }
	function offsetSet($at, $value): void { oracle_block(42); }
	function offsetUnset($at): void { oracle_block(43); }
	function getIterator(): \Iterator { oracle_block(44); return new \ArrayIterator([1, 2]); }
	function count(): int { oracle_block(45); return 3; }
}

function deep(int $depth, int $n)
{
	if ($depth)
		return deep($depth - 1, $n) + 1;
	oracle_block($n);
	return 0;
}

function numbers(int $n)
{
	for ($i = 0; $i < $n; $i++) {
		oracle_block(50 + $i);
		$sent = yield $i;
	}
	return $n;
}

function delegates(int $n)
{
	oracle_block(60);
	yield -1;
	$got = yield from numbers($n);
	oracle_block(61);
	yield from [5, 6];
	return $got;
}

function delegates_twice(int $n)
{
	yield from delegates($n);
	yield from
		delegates($n);
}

function fails(int $n)
{
	try {
		oracle_block($n);
		if ($n % 2)
			throw new \RuntimeException('odd');
	} finally {
		oracle_block($n + 1);
	}
}

function by_reference(array &$values, int $n)
{
	$values[] = $n;
	oracle_block($n);
}

function callbacks(int $n)
{
	array_map(fn($x) => oracle_block($x), [70, 71]);
	$values = [3, 1, 2];
	usort($values, function ($a, $b) {
		oracle_block(72);
		return $a <=> $b;
	});
	call_user_func_array('Places\deep', [2, 73]);
	call_user_func([new Square(74), 'area'], 75);
	preg_replace_callback('/a/', function ($m) { oracle_block(76); return 'b'; }, 'aa');
	array_walk($values, static function (&$value) { oracle_block(77); });
	$first = oracle_block(...);
	$first(78);
	(new \ReflectionFunction('Places\deep'))->invoke(1, 79);
	iterator_to_array((function () { yield 1; oracle_block(80); yield 2; })());
	ob_start(function ($text) { oracle_block(81); return ''; });
	echo 'text';
	ob_end_clean();
	array_filter([1, 2], new Square(82));
}

function fibers(int $n)
{
	$fiber = new \Fiber(function (int $n) {
		oracle_block($n);
		$got = \Fiber::suspend(1);
		deep(3, $got);
	});
	$fiber->start(90);
	oracle_block(91);
	$fiber->resume(92);
}

function objects(int $n)
{
	$square = new Square($n);
	$square->area(100);
	$square->nothing(101);
	Square::nothing(102);
	$kept = $square->absent . "$square" . $square(103);
	$table = new Table;
	$table[1] = $table[2]; unset($table[3]);
	foreach ($table as $value)
		count($table);
	isset($table[4]);
	$nameless = new class(104) extends Base {
		function go() { oracle_block(105); }
	};
	$nameless->go();
}

function errors(int $n)
{
	set_error_handler(function ($number, $text) {
		oracle_block(110);
		return true;
	});
	$absent = [];
	$value = $absent['a'] .
		$absent['b'];
	restore_error_handler();
	try {
		fails(111);
	} catch (\RuntimeException $e) {
		oracle_block(112);
	}
	fails(114);
	try {
		intdiv(1, 0);
	} catch (\DivisionByZeroError) {
		oracle_block(115);
	}
	match (true) {
		$n > 1000 => oracle_block(116),
		default =>
			oracle_block(117),
	};
}

function files(int $n)
{
	eval('namespace Places;
		oracle_block(120);
		$in = fn() => oracle_block(121);
		$in();');
	include $GLOBALS['included'];
}

function work(int $n)
{
	deep($n % 40, 130);
	foreach (delegates_twice(2) as $value)
		oracle_block(131);
	$one = numbers(2);
	$one->current(); $one->send(5);
	callbacks($n);
	fibers($n);
	objects($n);
	errors($n);
	files($n);
	$values = [];
	by_reference($values, 132);
	static $calls = 0;
	if ($calls++ % 10 === 0)
		deep(200, 133);
}

$included = "$dump.inc.php";
file_put_contents($included, "<?php\nnamespace Places;\noracle_block(140);\n\n(function () { oracle_block(141); })();\n" .
	"return 1;\n");
spl_autoload_register(function ($class) {
	oracle_block(150);
	eval('class ' . $class . ' { static function made() { Places\oracle_block(151); } }');
});
\Late::made();
for ($i = 0; $i < $count; $i++)
	work($i);
if (function_exists('pcntl_fork')) {
	$child = pcntl_fork();
	if (!$child) {
		$told = [];
		for ($i = 0; $i < 20; $i++)
			work($i);
		save("$dump.child");
		exit(0);
	}
	pcntl_waitpid($child, $status);
}
register_shutdown_function(function () use ($dump) {
	oracle_block(160);
	save($dump);
});
echo "done\n";
