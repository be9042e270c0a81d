# SPDX-License-Identifier: BSD-2-Clause
# Allocates blocks by a function in C, from all kinds of frames, and says of each what the interpreter says of its stack.
# LIBRARY DUMP ROUNDS [wait]
require "fiddle"

LIBRARY = Fiddle.dlopen(ARGV[0])
BLOCK = Fiddle::Function.new(LIBRARY["oracle_block"], [Fiddle::TYPE_LONG], Fiddle::TYPE_VOIDP)
CALL = Fiddle::Function.new(LIBRARY["oracle_call"], [Fiddle::TYPE_VOIDP], Fiddle::TYPE_VOID)
# Methods in C (but those of Ruby in the interpreter and in fiddle), which are not among the frames of Ruby; no method below has one of these names.
IN_C = %w[each times map call instance_eval bind_call inject tap instance_exec public_send send sort initialize new fork loop
          join resume catch throw eval raise load to_proc define_method]
DUMP = Hash.new { |hash, key| hash[key] = [0, 0] }

# From 3.4 on Ruby puts the class before the method.
def name_of(location)
  location.label.sub(/([A-Z]\w*(::)?)+[#.]/, "")
end

def tell(size, locations)
  own = locations.reverse.reject { |it| IN_C.include?(name_of(it)) && !it.path.match?(/<internal|closure.rb/) }
  entry = DUMP[own.map { |it| "#{name_of(it)}:#{it.lineno};" }.join]
  entry[0] += 1
  entry[1] += size
end

def block(size)
  tell(size, caller_locations(0)); BLOCK.call(size)
end

def write_dump(path)
  File.open(path, "w") { |file| DUMP.each { |stack, (blocks, bytes)| file.puts "#{blocks} #{bytes} #{stack}" } }
end

def deep(n, &inner)
  return inner.call if n == 0

  deep(n - 1, &inner)
end

class Shop
  define_method(:defined) { |size| block(size) }
  define_method(:each) { |&inner| inner.call(1) }
  include Enumerable

  def method_missing(name, size)
    name == :missing ? block(size) : super
  end

  def respond_to_missing?(name, all = false) = name == :missing || super

  def to_s
    block(40)
    "shop"
  end

  def <=>(_other)
    block(48)
    0
  end
end

def raises
  raise ArgumentError, "no"
ensure
  block(56)
end

def rescues
  raises
rescue ArgumentError
  block(64)
end

# Lines are found in an index of instructions: some before and some after the first ones, and after the first block of it.
def several_lines(i)
  numbers = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, i, i + 1, i + 2, i + 3, i + 4,
    i + 5, i * 2, i * 3,
  ]
  table = { a: 1, b: 2, c: [i], d: { e: i } }
  if i > 3
    block(72)
  else
    block(80)
  end
  text = "#{numbers} #{table}"
  case i
  when 0 then block(88)
  when 1 then block(96)
  else
    block(
      104
    )
  end
  text
end

many = (1..300).map { |i| "  a#{i} = [#{i}, #{i}]\n  block(112) if i == #{i}\n" }.join
eval("def many_lines(i)\n#{many}  block(120)\nend\n", TOPLEVEL_BINDING, "many.rb", 1000)

shop = Shop.new
fiber = Fiber.new do
  loop do
    block(128)
    Fiber.yield
  end
end
closure = Fiddle::Closure::BlockCaller.new(Fiddle::TYPE_VOID, []) { block(136) }

moved = false
round = lambda do |i|
  block(16)
  [1, 2].each { block(24) }
  2.times { deep(3) { block(32) } }
  shop.defined(33)
  shop.missing(34)
  "#{shop}"
  [shop, shop].sort
  shop.map { block(35) }
  rescues
  several_lines(i % 6)
  many_lines(i % 400)
  fiber.resume
  CALL.call(closure) unless moved || GC.auto_compact # fiddle 1.1.0 crashes once its closure has been moved
  eval("block(144)", binding, "line.rb", i % 3 + 1)
  eval("def again#{i % 4}\n#{"\n" * (i % 7)}  block(152)\nend\nagain#{i % 4}", binding, "again.rb")
  Thread.new { block(160) }.join if i % 50 == 0
  catch(:out) { deep(2) { block(168); throw :out } }
  shop.instance_eval { block(176) }
  :defined.to_proc.call(shop, 184)
  deep(20) { block(192) } if i % 10 == 0
  if i % 200 == 199
    GC.compact
    moved = true
  end
  GC.start if i % 100 == 0
end

rounds = ARGV[2].to_i
if ARGV[3] == "wait"
  $stdout.sync = true
  puts "ready"
  $stdin.gets
end
rounds.times { |i| round.call(i) }
write_dump(ARGV[1])
child = fork do
  DUMP.clear
  20.times { |i| round.call(i) }
  write_dump(ARGV[1] + ".child")
  exit!
end
Process.wait(child)
puts "done"
$stdin.gets if ARGV[3] == "wait"
