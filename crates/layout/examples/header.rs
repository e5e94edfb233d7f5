//! Prints the header with the regions that C reads: the workers of other proxies (`fronts/lib`) and the programs in the kernel
//! (`crates/load/src/bpf`). `cargo xtask headers` runs it, and keeps what it prints.

use sidelong_layout::describe::{Field, Struct, Type, Word};
use sidelong_layout::{
    LAYOUT_VERSION, MAGIC, NAME_BYTES, NODES_MAX, PLACES_MAX, RegionKind, SITES_MAX, SLOTS,
};

/// The kinds that C reads.
const KINDS: [RegionKind; 3] = [RegionKind::Choice, RegionKind::Workers, RegionKind::Kernel];

const BEGIN: &str = "\
/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The regions that C reads, as crates/layout declares them, with the hash of each. `cargo xtask headers` writes this file: change it
 * there. A part of a word begins at its bit _AT, and is _MAX at most.
 */
#ifndef SIDELONG_LAYOUT_H
#define SIDELONG_LAYOUT_H

/* Programs in the kernel have integers of their own, and no atomic ones. */
#ifdef __bpf__
#define ATOMIC(type) type
#else
#include <stdint.h>
#define ATOMIC(type) _Atomic(type)
#endif

";

fn main() {
    let constants = [
        ("LAYOUT_VERSION", u64::from(LAYOUT_VERSION)),
        ("MAGIC", MAGIC),
        ("SITES_MAX", SITES_MAX as u64),
        ("NODES_MAX", NODES_MAX as u64),
        ("NAME_BYTES", NAME_BYTES as u64),
        ("SLOTS", SLOTS as u64),
        ("PLACES_MAX", PLACES_MAX as u64),
    ];
    print!("{BEGIN}{}", constants.map(|(name, value)| define(name, value)).concat());
    for kind in KINDS {
        let name = format!("{kind:?}").to_uppercase();
        print!("{}", define(&format!("KIND_{name}"), kind as u64));
        print!("{}", define(&format!("LAYOUT_{name}"), kind.layout_hash()));
    }
    let mut header = Header::default();
    KINDS.iter().for_each(|kind| header.add(kind.holds()));
    header.words.iter().for_each(|word| print!("{}", defined(word)));
    header.structs.iter().for_each(|of| print!("{}", declared(of)));
    println!("\n#endif");
}

fn define(name: &str, value: u64) -> String {
    let value = if value > 1 << 20 { format!("{value:#x}ull") } else { value.to_string() };
    format!("#define {name} {value}\n")
}

/// All that the header has, each thing once and after those that it consists of.
#[derive(Default)]
struct Header {
    structs: Vec<&'static Struct>,
    words: Vec<&'static Word>,
}

impl Header {
    fn add(&mut self, of: &'static Type) {
        match of {
            Type::Integer { .. } => {}
            Type::Array(of, _) => self.add(of),
            Type::Struct(of) if self.structs.iter().any(|known| known.name == of.name) => {}
            Type::Struct(of) => {
                of.fields.iter().for_each(|field| self.add(field.of));
                let words = of.fields.iter().flat_map(|field| field.words);
                words.for_each(|word| {
                    if self.words.iter().all(|known| known.name != word.name) {
                        self.words.push(word);
                    }
                });
                self.structs.push(of);
            }
        }
    }
}

fn defined(word: &Word) -> String {
    let name = |of: &str| format!("{}_{of}", word.name).to_uppercase();
    let parts = word.parts.iter().enumerate().flat_map(|(part, (of, _))| {
        let at = define(&name(&format!("{of}_at")), word.shift(part).into());
        [at, define(&name(&format!("{of}_max")), word.max(part))]
    });
    let values = word.values.iter().map(|(of, value)| define(&name(of), *value));
    format!("\n{}", parts.chain(values).collect::<String>())
}

fn declared(of: &Struct) -> String {
    let name = snake(of.name);
    let (open, fixed): (Vec<_>, Vec<_>) =
        of.fields.iter().partition(|field| matches!(field.of, Type::Array(_, 0)));
    let mut text = format!("\nstruct {name} {{\n");
    for field in fixed.iter().chain(open.first()) {
        text += &format!("    {};\n", declarator(field));
    }
    for field in open.iter().skip(1) {
        text += &format!("    /* then {} */\n", declarator(field));
    }
    text + &format!("}};\n_Static_assert(sizeof(struct {name}) == {}, \"{name}\");\n", of.bytes)
}

/// `uint64_t zero[2]`, and `[]` of what the region says the number of.
fn declarator(field: &Field) -> String {
    let (mut of, mut times) = (field.of, String::new());
    while let Type::Array(one, number) = of {
        times += &if *number == 0 { "[]".to_owned() } else { format!("[{number}]") };
        of = one;
    }
    let of = match of {
        Type::Integer { bytes, is_atomic: true } => format!("ATOMIC(uint{}_t)", bytes * 8),
        Type::Integer { bytes, .. } => format!("uint{}_t", bytes * 8),
        Type::Struct(of) => format!("struct {}", snake(of.name)),
        Type::Array(..) => unreachable!("an array of arrays ends"),
    };
    format!("{of} {}{times}", field.name)
}

/// `RegionHeader` as `region_header`.
fn snake(name: &str) -> String {
    let letter = |(at, letter): (usize, char)| {
        let gap = if at > 0 && letter.is_uppercase() { "_" } else { "" };
        format!("{gap}{}", letter.to_lowercase())
    };
    name.chars().enumerate().map(letter).collect()
}
