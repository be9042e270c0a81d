// SPDX-License-Identifier: BSD-2-Clause
//! A Rust program with functions, methods and generics that allocate.

mod pantry {
    pub struct Jar {
        pub content: Vec<u8>,
    }

    impl Jar {
        #[inline(never)]
        pub fn filled(size: usize) -> Jar {
            Jar { content: Vec::with_capacity(size) }
        }
    }
}

#[inline(never)]
fn boxed<T: Default>() -> Box<[T; 25]>
where
    [T; 25]: Default2,
{
    Box::new(Default2::make())
}

trait Default2 {
    fn make() -> Self;
}

impl Default2 for [u64; 25] {
    fn make() -> Self {
        [7; 25]
    }
}

fn main() {
    let jar = pantry::Jar::filled(1000);
    let numbers = boxed::<u64>();
    std::mem::forget(std::hint::black_box((jar.content, numbers)));
}
