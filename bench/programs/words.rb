# SPDX-License-Identifier: BSD-2-Clause
# Builds indexes of made-up words, too long to be kept inside their objects. usage: words.rb ROUNDS
sum = 0
ARGV[0].to_i.times do |round|
  places = Hash.new { |words, word| words[word] = [] }
  20_000.times { |place| places["a word that is made up, #{place * 7919 % 15_013}"] << place }
  sum += places.map { |word, found| word.upcase + found.join(",") }.sum(&:length) + round
end
puts sum
