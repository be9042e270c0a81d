// SPDX-License-Identifier: BSD-2-Clause
// Builds indexes of made-up words: about 100,000 allocations a round. usage: words ROUNDS
use std::collections::{BTreeMap, HashMap};

fn word(random: &mut u64) -> String {
    *random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    format!("word{}", *random >> 48)
}

fn round(random: &mut u64) -> usize {
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    let mut by_length: BTreeMap<usize, Vec<Box<str>>> = BTreeMap::new();

    for place in 0..22_000 {
        places.entry(word(random)).or_default().push(place);
    }
    for (text, found) in &places {
        by_length.entry(text.len() + found.len()).or_default().push(text.clone().into_boxed_str());
    }
    by_length.values().map(|words| words.len()).sum::<usize>() + places.len()
}

fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut random = 1;
    let sum: usize = (0..rounds).map(|_| round(&mut random)).sum();

    println!("{sum}");
}
