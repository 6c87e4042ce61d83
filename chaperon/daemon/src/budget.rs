//! The memory that requests of a session may hold together. An agent can open many connections and
//! leave their answers unread; `squeue | less` does that for hours, so nothing is given up for its
//! age. What is large waits until something else was sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::refusal::Refusal;

/// What large calls and the files with them may hold at the same time, in units of [`UNIT`]:
/// 128 MiB.
const REQUESTS: usize = 128 << 10;

/// What Slurm's answers may hold, likewise: 256 MiB, two of the longest.
const ANSWERS: usize = 256 << 10;

/// What one request may hold that is not counted, in bytes. Nearly every request is smaller, and
/// waits for nothing.
const FREE: usize = 256 << 10;

/// Bytes are counted in units of this many.
const UNIT: usize = 1 << 10;

/// How long a request waits for memory. Those that wait may hold some themselves, so that they could
/// wait for each other.
const PATIENCE: Duration = Duration::from_secs(30);

/// The same for an answer: others wait for its turn.
const PATIENCE_OF_ANSWERS: Duration = Duration::from_secs(5);

/// What is left for a session.
#[derive(Clone, Debug)]
pub struct Budget {
    all: usize,
    left: Arc<Semaphore>,
    patience: Duration,
}

impl Budget {
    /// For calls, and the files that are read for them.
    pub fn of_requests() -> Self {
        Self::of(REQUESTS, PATIENCE)
    }

    /// For what Slurm answers. It is apart, so that an answer nobody reads keeps nothing from being
    /// submitted.
    pub fn of_answers() -> Self {
        Self::of(ANSWERS, PATIENCE_OF_ANSWERS)
    }

    fn of(all: usize, patience: Duration) -> Self {
        Self {
            all,
            left: Arc::new(Semaphore::new(all)),
            patience,
        }
    }

    /// Begins an account for one request or answer.
    pub fn account(&self) -> Account {
        Account {
            budget: self.clone(),
            bytes: 0,
            held: None,
        }
    }
}

/// What one request or answer holds; given back when it is dropped.
#[derive(Debug)]
pub struct Account {
    budget: Budget,
    bytes: usize,
    held: Option<OwnedSemaphorePermit>,
}

impl Account {
    /// Counts so many bytes more, and waits for room if there is none. Cancel-safe but for the
    /// number.
    ///
    /// # Errors
    /// There was no room for a long time, or can never be.
    pub async fn more(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.bytes = self.bytes.saturating_add(bytes);
        let wanted = self.bytes.saturating_sub(FREE).div_ceil(UNIT);
        let has = self
            .held
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        let lacking = match wanted.checked_sub(has) {
            None | Some(0) => return Ok(()),
            Some(lacking) => u32::try_from(lacking).map_err(|_| exhausted(self.budget.all))?,
        };
        if wanted > self.budget.all {
            return Err(exhausted(self.budget.all));
        }
        let room = Arc::clone(&self.budget.left).acquire_many_owned(lacking);
        let Ok(Ok(permit)) = tokio::time::timeout(self.budget.patience, room).await else {
            return Err(exhausted(self.budget.all));
        };
        match &mut self.held {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }
}

fn exhausted(all: usize) -> Refusal {
    Refusal::mistake(format!(
        "the requests of this session hold {} MiB outside the jail, and no more is to be had",
        (all * UNIT) >> 20
    ))
    .hint("read answers to their end, or ask for less at a time")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(work)
    }

    #[test]
    fn what_is_large_waits_for_what_is_held() {
        let budget = Budget {
            patience: Duration::from_millis(20),
            ..Budget::of_answers()
        };
        run(async {
            let (mut first, mut second) = (budget.account(), budget.account());
            first.more(200 * MIB).await.unwrap();
            assert!(second.more(100 * MIB).await.is_err());
            drop(second);
            // What is small is not held up.
            let mut third = budget.account();
            third.more(FREE).await.unwrap();
            let mut fourth = budget.account();
            let patient = Budget {
                patience: PATIENCE,
                ..budget.clone()
            };
            fourth.budget = patient;
            let freed = async {
                tokio::task::yield_now().await;
                drop(first);
            };
            let (room, ()) = tokio::join!(fourth.more(100 * MIB), freed);
            room.unwrap();
        });
    }

    #[test]
    fn parts_are_counted_together_and_given_back() {
        let budget = Budget::of_answers();
        run(async {
            let mut account = budget.account();
            for _ in 0..1024 {
                account.more(UNIT).await.unwrap();
            }
            assert_eq!(budget.left.available_permits(), ANSWERS - 768);
            assert!(account.more(256 * MIB).await.is_err());
            drop(account);
            assert_eq!(budget.left.available_permits(), ANSWERS);
        });
    }
}
