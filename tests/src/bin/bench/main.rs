//! Benchmarks on the real server: `cargo run --release -p halo-tests --bin bench`. Each says what it does while it
//! runs; at the end all figures stand in one table, and with `--json FILE` in a file, too. The figures are those of
//! this machine at this moment: what counts is how they compare with each other and with those of an earlier commit.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is what it is for")]

mod long_log;
mod report;
mod search;

use clap::{Parser, ValueEnum};
use report::Report;
use std::path::PathBuf;

/// Measures the real server.
#[derive(Parser)]
struct Args {
    /// Only these; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<Benchmark>,
    /// Writes the figures to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Benchmark {
    /// Pages of history in logs of 1,000, 10,000 and 100,000 rows
    Log,
    /// A turn of a session with 10 rows and with 100,000
    TurnByLog,
    /// The agents' grep against the rg binary, on a tree of 1 GB
    Grep,
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its figures say nothing; use `cargo run --release`");
    }
    let mut report = Report::default();
    for benchmark in Benchmark::value_variants() {
        if !args.only.is_empty() && !args.only.contains(benchmark) {
            continue;
        }
        match benchmark {
            Benchmark::Log => long_log::pages(&mut report).await,
            Benchmark::TurnByLog => long_log::turns(&mut report).await,
            Benchmark::Grep => search::compare(&mut report).await,
        }
    }
    println!("\n{}", report.table());
    if let Some(file) = args.json {
        std::fs::write(&file, report.json()).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}
