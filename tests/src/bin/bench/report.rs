//! Figures: gathered while benchmarks run, shown at the end.

use serde_json::json;
use std::fmt::Write;
use std::time::Duration;

/// All figures so far.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    benchmark: &'static str,
    case: String,
    p50: Duration,
    p99: Duration,
    memory_kib: u64,
}

impl Report {
    /// Adds the times of one case, at least one, and the memory that the server held after it; says so.
    pub fn add(&mut self, benchmark: &'static str, case: String, mut times: Vec<Duration>, memory_kib: u64) {
        times.sort_unstable();
        let at = |part: usize| times[(times.len() - 1) * part / 100];
        let row = Row { benchmark, case, p50: at(50), p99: at(99), memory_kib };
        eprintln!("{}", line(&row));
        self.rows.push(row);
    }

    /// What people read.
    pub fn table(&self) -> String {
        let head = format!("{:<12} {:<32} {:>9} {:>9} {:>9}", "benchmark", "case", "p50 µs", "p99 µs", "MiB");
        self.rows.iter().fold(head, |mut table, row| {
            // A string takes everything.
            let _ = write!(table, "\n{}", line(row));
            table
        })
    }

    /// What programs read: times in microseconds, memory in KiB.
    pub fn json(&self) -> String {
        let rows = self.rows.iter().map(|row| {
            json!({
                "benchmark": row.benchmark,
                "case": row.case,
                "p50Us": row.p50.as_micros() as u64,
                "p99Us": row.p99.as_micros() as u64,
                "memoryKib": row.memory_kib,
            })
        });
        format!("{:#}\n", json!({"figures": rows.collect::<Vec<_>>()}))
    }
}

fn line(row: &Row) -> String {
    format!(
        "{:<12} {:<32} {:>9} {:>9} {:>9.1}",
        row.benchmark,
        row.case,
        row.p50.as_micros(),
        row.p99.as_micros(),
        row.memory_kib as f64 / 1024.0
    )
}
