//! Figures: gathered while benchmarks run, shown at the end.

use serde_json::json;
use std::fmt::Write;
use std::time::Duration;

/// All figures so far.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
    comparisons: Vec<Comparison>,
}

#[derive(Debug)]
struct Row {
    benchmark: &'static str,
    case: String,
    p50: Duration,
    p99: Duration,
    memory_kib: u64,
}

/// One case by halo and by another program.
#[derive(Debug)]
struct Comparison {
    benchmark: &'static str,
    case: String,
    ours: Spread,
    theirs: Spread,
    target: f64,
}

#[derive(Debug)]
struct Spread {
    least: Duration,
    median: Duration,
    most: Duration,
}

impl Spread {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self { least: times[0], median: times[times.len() / 2], most: times[times.len() - 1] }
    }

    fn text(&self) -> String {
        let [least, median, most] =
            [self.least, self.median, self.most].map(|time| time.as_secs_f64() * 1000.0);
        format!("{median:.0} ms ({least:.0}–{most:.0})")
    }
}

impl Comparison {
    fn ratio(&self) -> f64 {
        self.ours.median.as_secs_f64() / self.theirs.median.as_secs_f64().max(f64::EPSILON)
    }

    fn line(&self) -> String {
        let verdict = if self.ratio() <= self.target { "within" } else { "ABOVE" };
        format!(
            "{:<12} {:<34} {:>20} {:>20} {:>6.2} {verdict} {:.1}",
            self.benchmark,
            self.case,
            self.ours.text(),
            self.theirs.text(),
            self.ratio(),
            self.target
        )
    }
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

    /// Adds the times of one case, at least one of each, by halo and by another program; says which was faster.
    pub fn compare(
        &mut self,
        benchmark: &'static str,
        case: String,
        ours: Vec<Duration>,
        theirs: Vec<Duration>,
        target: f64,
    ) {
        let row = Comparison { benchmark, case, ours: Spread::of(ours), theirs: Spread::of(theirs), target };
        eprintln!("{}", row.line());
        self.comparisons.push(row);
    }

    /// What people read.
    pub fn table(&self) -> String {
        let head = format!("{:<12} {:<32} {:>9} {:>9} {:>9}", "benchmark", "case", "p50 µs", "p99 µs", "MiB");
        let mut table = String::new();
        // A string takes everything.
        if !self.rows.is_empty() {
            let _ = writeln!(table, "{head}");
        }
        for row in &self.rows {
            let _ = writeln!(table, "{}", line(row));
        }
        if !self.comparisons.is_empty() {
            let _ = writeln!(
                table,
                "{:<12} {:<34} {:>20} {:>20} {:>6}",
                "benchmark", "case", "halo", "the other", "ratio"
            );
        }
        for row in &self.comparisons {
            let _ = writeln!(table, "{}", row.line());
        }
        table
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
        let comparisons = self.comparisons.iter().map(|row| {
            json!({
                "benchmark": row.benchmark,
                "case": row.case,
                "medianUs": row.ours.median.as_micros() as u64,
                "otherMedianUs": row.theirs.median.as_micros() as u64,
                "ratio": row.ratio(),
                "target": row.target,
            })
        });
        let (rows, comparisons): (Vec<_>, Vec<_>) = (rows.collect(), comparisons.collect());
        format!("{:#}\n", json!({"figures": rows, "comparisons": comparisons}))
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
