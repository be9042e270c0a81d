# SPDX-License-Identifier: BSD-2-Clause
# Makes garbage, and keeps some of it when asked to: collected.rb leak|none STEPS
kept = []
ARGV[1].to_i.times do |step|
  garbage = (0...500).map { |i| {name: "request #{step}/#{i} with a name of its own", data: Array.new(20, i)} }
  kept.concat(garbage[0, 50]) if ARGV[0] == "leak"
  sleep 0.008
end
