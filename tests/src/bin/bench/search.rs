//! The search of the agents' `grep` against the `rg` binary: the same tree, the same patterns, the same files left
//! out. Both are warm, and take turns, so that whatever else this machine does meanwhile slows both.

use crate::report::Report;
use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::processes::{peak_kib, resident_kib};
use halo_tests::server::{Launch, Server};
use halo_tests::web::Client;
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Measured rounds, after one that is not.
const ROUNDS: usize = 9;
/// What halo may take of what `rg` takes.
const TARGET: f64 = 1.5;
/// More matches than any pattern but the frequent one has.
const ALL: usize = 1000;

/// What is searched for: a name, the pattern, and how many matches are wanted.
const CASES: [(&str, &str, usize); 5] = [
    ("a rare literal", "marzipan_needle", ALL),
    ("a frequent literal, the first 50", "return", 50),
    ("a regular expression", r"fn \w+_of_(almond|sugar)\(", ALL),
    ("ignoring case", "(?i)MARZIPAN_needle", ALL),
    ("no literal at all", r"[A-Z]{6}\d{4}[a-f]{3}", ALL),
];

/// Compares both, where `rg` is installed.
pub async fn compare(report: &mut Report) {
    let Some(rg) = find_rg() else {
        eprintln!(
            "grep is skipped: there is no `rg` to compare with; install it with `apt-get install ripgrep`"
        );
        return;
    };
    let model = ModelServer::start().await.expect("a model server");
    let place = Place::new();
    place.scripted(&model, Protocol::OpenAi);
    make_tree(&place.workspace());
    let server = Server::launch(place, Launch::default()).await;
    let client = server.client("full").await;
    let before = resident_kib(server.pid());
    for (case, pattern, max) in CASES {
        eprintln!("… grep: {case}");
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let (took, found) = by_halo(&client, pattern, max).await;
            let (rg_took, rg_found) = by_rg(&rg, &server.workspace(), pattern, max);
            if max == ALL {
                assert_eq!(found, rg_found, "both find the same");
            }
            if round > 0 {
                ours.push(took);
                theirs.push(rg_took);
            }
        }
        report.compare("grep", case.to_owned(), ours, theirs, TARGET);
    }
    let peak = peak_kib(server.pid()).saturating_sub(before);
    eprintln!("grep: the server's memory rose by {:.1} MiB at most", peak as f64 / 1024.0);
}

fn find_rg() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("rg")).find(|file| file.is_file())
}

/// The time that the tool took, and its lines in order.
async fn by_halo(client: &Client, pattern: &str, max: usize) -> (Duration, Vec<String>) {
    let session = client.mint().await;
    let order = format!("TOOL grep {}", json!({"pattern": pattern, "max_results": max}));
    client.turn(&session, &order).await;
    let history = client.history(&session).await;
    let rows = history["messages"].as_array().expect("messages");
    let result = rows.iter().rfind(|row| row["type"] == "tool_result").expect("a result");
    let text = result["toolOutput"].as_str().expect("an output");
    let took = Duration::from_millis(result["durationMs"].as_u64().expect("a duration"));
    (took, sorted(text.lines().map(str::to_owned)))
}

fn by_rg(rg: &Path, folder: &Path, pattern: &str, max: usize) -> (Duration, Vec<String>) {
    let begin = Instant::now();
    let mut command = Command::new(rg);
    command.args(["--no-config", "--no-ignore", "--hidden", "--no-messages", "--crlf"]);
    command.args(["--line-number", "--no-heading", "--color", "never"]);
    for skipped in ["node_modules", ".git", ".next", "dist", "/.halo"] {
        command.arg("--glob").arg(format!("!{skipped}"));
    }
    command.args(["--regexp", pattern, "."]).current_dir(folder);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("rg runs");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    // The reader is dropped after the last line that is wanted, which ends `rg`.
    let lines: Vec<String> = lines.take(max).map(|line| line.expect("a line")).collect();
    let _ = child.wait();
    let took = begin.elapsed();
    (took, sorted(lines.into_iter().map(|line| line.trim_start_matches("./").to_owned())))
}

fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    lines.sort_unstable();
    lines
}

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }
}

/// One gigabyte: many files as of a program, some big logs, binaries, and what nobody searches.
fn make_tree(root: &Path) {
    let mut numbers = Numbers(42);
    let source = text(&mut numbers, 4 << 20, "    ");
    let log = text(&mut numbers, 40 << 20, "2026-01-01T00:00:00Z INFO ");
    let tell = |what: &str| eprintln!("… a tree of 1 GB in {}: {what}", root.display());
    tell("40,000 small files");
    for number in 0..40_000 {
        let path = format!("code/m{:02}/p{:02}/file{number}.rs", number % 53, number / 53 % 31);
        put(root, &path, piece(&mut numbers, &source, 1000, 15_000), (number % 797 == 5).then_some(number));
    }
    tell("12 logs");
    for number in 0..12 {
        put(root, &format!("logs/{number}.log"), &log, Some(number));
    }
    tell("binaries, node_modules and .git");
    for number in 0..200 {
        let mut bytes = b"\x7fELF\0\0".to_vec();
        bytes.extend_from_slice(piece(&mut numbers, &source, 500_000, 100_000));
        put(root, &format!("bin/lib{number}.so"), &bytes, Some(number));
    }
    for number in 0..5000 {
        for folder in ["code/node_modules/pkg", "code/.git/objects/x"] {
            let path = format!("{folder}{:02}/{number}", number % 97);
            put(root, &path, piece(&mut numbers, &source, 1000, 15_000), Some(number));
        }
    }
}

fn put(root: &Path, path: &str, content: &[u8], needle: Option<usize>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("its folder");
    let mut file = fs::File::create(&path).expect("a file");
    file.write_all(content).expect("its content");
    if let Some(number) = needle {
        let line =
            format!("let marzipan_needle = {number};\nfn bag{number}_of_sugar(x: u8) {{}}\nABCDEF1234abc\n");
        file.write_all(line.as_bytes()).expect("its end");
    }
}

/// A piece of so many bytes at least, and as many more as chance wants.
fn piece<'a>(numbers: &mut Numbers, pool: &'a [u8], least: usize, more: usize) -> &'a [u8] {
    let length = least + numbers.below(more);
    let start = numbers.below(pool.len() - length);
    &pool[start..start + length]
}

/// Lines of words, about as long as those of a program; two thirds of the words are names, the rest what programs are
/// held together by.
fn text(numbers: &mut Numbers, bytes: usize, before: &str) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "let",
        "value",
        "=",
        "return",
        "fn",
        "match",
        "result",
        "{",
        "}",
        "if",
        "error",
        "// the sum of all",
        "self.state",
        "for",
        "count += 1;",
        "\"text\"",
    ];
    const NAMES: [&str; 12] = [
        "order", "price", "list", "user", "parse", "first", "cache", "node", "total", "width", "path", "name",
    ];
    let mut text = Vec::with_capacity(bytes + 100);
    while text.len() < bytes {
        text.extend_from_slice(before.as_bytes());
        for _ in 0..2 + numbers.below(9) {
            if numbers.below(3) > 0 {
                let name =
                    format!("{}_{}", NAMES[numbers.below(NAMES.len())], NAMES[numbers.below(NAMES.len())]);
                text.extend_from_slice(name.as_bytes());
            } else {
                text.extend_from_slice(WORDS[numbers.below(WORDS.len())].as_bytes());
            }
            text.push(b' ');
        }
        text.push(b'\n');
    }
    text
}
