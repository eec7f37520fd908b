// hold.rs NAME SECONDS : work for some seconds under a lease, which "dlock hold" holds.

use std::io::{BufRead, BufReader, Error, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A lease, until release() or the end of this process.
struct Lease {
    hold: Child,
    /// The line that says that it is held: JSON, with its token.
    held: String,
    lost: Arc<AtomicBool>,
}

impl Lease {
    /// None: it is not free, or the server could not be asked, as standard error says.
    fn acquire(name: &str, options: &[&str]) -> Result<Option<Lease>, Error> {
        let mut hold = Command::new("dlock")
            .arg("hold")
            .args(options)
            .arg(name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(hold.stdout.take().unwrap());
        let mut held = String::new();
        if lines.read_line(&mut held)? == 0 {
            hold.wait()?;
            return Ok(None);
        }
        let lost = Arc::new(AtomicBool::new(false));
        let is_lost = lost.clone();
        std::thread::spawn(move || {
            let _ = lines.read_to_end(&mut Vec::new()); // it ends with the lease
            is_lost.store(true, Ordering::SeqCst);
        });
        Ok(Some(Lease { hold, held, lost }))
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Gives it back; false if it was lost.
    fn release(mut self) -> Result<bool, Error> {
        drop(self.hold.stdin.take());
        Ok(self.hold.wait()?.success())
    }
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().collect();
    let steps = arguments[2].parse::<f64>().unwrap() * 10.0;
    let lease = match Lease::acquire(&arguments[1], &["--quiet"])? {
        Some(lease) => lease,
        None => {
            println!("busy");
            return Ok(());
        }
    };
    let token = lease.held.split("\"token\": ").nth(1).unwrap();
    println!("held {}", token.split(',').next().unwrap());
    for _ in 0..steps as u64 {
        if lease.is_lost() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100)); // a step of the work
    }
    println!("{}", if lease.release()? { "done" } else { "lost" });
    Ok(())
}
