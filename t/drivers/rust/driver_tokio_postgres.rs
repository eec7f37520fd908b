// tokio-postgres.
// speaks: postgres
// needs: cargo librust-tokio-postgres-dev librust-tokio-dev

use std::env;
use std::error::Error as _;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSqlOwned, ToSql};
use tokio_postgres::{Client, Error, NoTls};

struct Tap {
    count: u32,
    failed: u32,
}

impl Tap {
    fn ok(&mut self, passed: bool, what: &str) {
        self.count += 1;
        self.failed += u32::from(!passed);
        println!("{} {} - {}", if passed { "ok" } else { "not ok" }, self.count, what);
    }

    // The same value, and of the same type.
    fn same<T: PartialEq + std::fmt::Debug>(&mut self, is: T, wanted: T, what: &str) {
        let passed = is == wanted;
        self.ok(passed, what);
        if !passed {
            println!("#   got {:?}, wanted {:?}", is, wanted);
        }
    }
}

async fn connect() -> Client {
    let variable = |name: &str| env::var(format!("DLOCK_{}", name)).unwrap();
    let address = format!("host={} port={} user={} dbname={}", variable("HOST"), variable("PORT"), variable("USER"), variable("DATABASE"));
    let (client, connection) = tokio_postgres::connect(&address, NoTls).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    client
}

// What an expression is.
async fn value<T: FromSqlOwned>(client: &Client, expression: &str, arguments: &[&(dyn ToSql + Sync)]) -> Result<T, Error> {
    Ok(client.query_one(&format!("SELECT {}", expression), arguments).await?.get(0))
}

// What doc/drivers.md says that an error is.
fn kind_of(error: &Error) -> String {
    match error.code().map(SqlState::code) {
        Some("55L01") => "lost",
        Some("55P03") => "blocked",
        Some("40P01") => "deadlock",
        Some("22004") | Some("22007") | Some("22023") | Some("55000") => "misuse",
        Some("57P01") => "gone",
        None if error.is_closed() => "gone",
        _ => return format!("{:?}", error),
    }
    .to_string()
}

// The kind of the error that a call ends with.
fn kind<T>(result: Result<T, Error>) -> String {
    result.err().map_or("none".to_string(), |error| kind_of(&error))
}

async fn guarded(client: &mut Client, token: i64) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    transaction.execute("SELECT dlock_guard($1, $2, $3)", &[&"guarded", &"me", &token]).await?;
    transaction.commit().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut tap = Tap { count: 0, failed: 0 };
    let mut one = connect().await;
    let second = connect().await;
    const ACQUIRE: &str = "dlock_acquire($1, $2, $3::float8)";
    type Token = Option<i64>;
    type Answer = Option<bool>;

    // names
    for name in ["it's", r"C:\jobs\x", "caf\u{e9}\""] {
        tap.ok(value::<Token>(&one, ACQUIRE, &[&name, &"me", &30.0]).await.unwrap().is_some(), name);
        tap.same(value::<String>(&one, "dlock_owner($1)", &[&name]).await.unwrap(), "me".to_string(), "that name is held");
    }

    // numbers: the driver asks the server for a type, and has none for a dlock_duration
    for ttl in [&30.0 as &(dyn ToSql + Sync), &30, &"30s"] {
        let error = value::<Token>(&one, "dlock_acquire($1, $2, $3)", &[&"numbers", &"me", ttl]).await.unwrap_err();
        let reason = error.source().unwrap().to_string();
        tap.ok(reason.contains("dlock_duration"), &format!("a ttl without a cast: {}", reason));
    }
    let ttls: [(&str, &(dyn ToSql + Sync), f64); 4] =
        [("float8", &30.5, 30.5), ("int", &40, 40.0), ("bigint", &50i64, 50.0), ("text", &"1 minute", 60.0)];
    for (cast, ttl, seconds) in ttls {
        let acquire = format!("dlock_acquire($1, $2, $3::{})", cast);
        value::<Token>(&one, &acquire, &[&cast, &"me", ttl]).await.unwrap();
        let left: f64 = value(&one, "dlock_remaining($1, $2)", &[&cast, &"me"]).await.unwrap();
        tap.ok(seconds - 20.0 < left && left <= seconds, &format!("a ttl that is cast to {}", cast));
    }

    // token, limit, null, boolean
    let token = value::<Token>(&one, ACQUIRE, &[&"n", &"me", &600.0]).await.unwrap().unwrap();
    let renew = "dlock_renew($1, $2, $3::float8, $4)";
    tap.same(value::<Answer>(&one, renew, &[&"n", &"me", &600.0, &token]).await.unwrap(), Some(true), "renewed by its token");
    tap.same(value::<Answer>(&one, renew, &[&"n", &"me", &600.0, &(token + 1)]).await.unwrap(), Some(false), "not by another");
    tap.same(value::<Token>(&one, ACQUIRE, &[&"n", &"other", &30.0]).await.unwrap(), None, "None: somebody has it");
    tap.same(value::<Answer>(&one, "dlock_release($1, $2, $3)", &[&"n", &"me", &token]).await.unwrap(), Some(true), "released");
    tap.same(value::<Answer>(&one, "dlock_release($1, $2)", &[&"n", &"me"]).await.unwrap(), None, "None: nobody has it");
    let permit = "dlock_acquire_permit($1, $2, $3::float8, $4)";
    tap.ok(value::<Token>(&one, permit, &[&"permits", &"me", &30.0, &2i32]).await.unwrap().is_some(), "a limit is an i32");
    tap.ok(value::<Token>(&one, permit, &[&"permits", &"me", &30.0, &2i64]).await.is_err(), "and no i64");

    // lists
    let names = vec!["l1", "l2"];
    let tokens: Vec<i64> = value(&one, "dlock_acquire_all($1, $2, $3::float8)", &[&names, &"me", &30.0]).await.unwrap();
    let rows = one.query("SELECT dlock_release_many($1, $2, $3)", &[&names, &"me", &tokens]).await.unwrap();
    tap.same(rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>(), vec!["l1".to_string(), "l2".to_string()], "names and tokens go in and come out");

    // guards and errors
    let token = value::<Token>(&one, ACQUIRE, &[&"guarded", &"me", &600.0]).await.unwrap().unwrap();
    tap.same(kind(guarded(&mut one, token).await), "none".to_string(), "a guard in a transaction");
    tap.same(kind(guarded(&mut one, token + 1).await), "lost".to_string(), "an error: lost");
    tap.same(kind(value::<Token>(&one, ACQUIRE, &[&"", &"me", &30.0]).await), "misuse".to_string(), "an error: misuse");
    value::<Token>(&one, permit, &[&"itself", &"me", &30.0, &1i32]).await.unwrap();
    let waits = "dlock_acquire_permit($1, $2, $3::float8, $4, 60)";
    tap.same(kind(value::<Token>(&one, waits, &[&"itself", &"me", &30.0, &1i32]).await), "deadlock".to_string(), "an error: deadlock");
    let transaction = one.transaction().await.unwrap();
    transaction.execute("SELECT dlock_guard('guarded', 'me', $1)", &[&token]).await.unwrap();
    second.batch_execute("SET lock_timeout = '200ms'").await.unwrap();
    let blocked = value::<Token>(&second, "dlock_acquire($1, $2, 30, 600)", &[&"guarded", &"other"]).await;
    tap.same(kind(blocked), "blocked".to_string(), "an error: blocked");
    transaction.rollback().await.unwrap();

    // a wait that the program gives up goes on in the server
    let pid: i32 = value(&second, "pg_backend_pid()", &[]).await.unwrap();
    second.batch_execute("RESET lock_timeout").await.unwrap();
    let hasty = tokio::time::timeout(Duration::from_millis(200), value::<Token>(&second, "dlock_acquire('guarded', 'hasty', 30, 600)", &[])).await;
    tap.ok(hasty.is_err(), "timeout() ends the wait for the answer");
    let mut waits = 0;
    while waits == 0 {
        waits = value::<i64>(&one, "count(*) FROM dlock.waiters WHERE owner = 'hasty'", &[]).await.unwrap();
    }
    tap.same(waits, 1, "but the server goes on waiting");

    // session leases, and a server that is gone
    let third = connect().await;
    value::<Token>(&third, "dlock_acquire_session('session', 'me', 30)", &[]).await.unwrap();
    drop(third);
    tap.ok(value::<Token>(&one, "dlock_acquire('session', 'other', 30, 60)", &[]).await.unwrap().is_some(), "a session lease ends with its client");
    value::<bool>(&one, "pg_terminate_backend($1, 60000)", &[&pid]).await.unwrap();
    tap.same(kind(value::<bool>(&second, "dlock_is_free('x')", &[]).await), "gone".to_string(), "an error: the server is gone");

    println!("1..{}", tap.count);
    std::process::exit(i32::from(tap.failed > 0));
}
