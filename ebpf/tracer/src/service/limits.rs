//! Who uses up how much of what all users of a node share.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_sandbox_events::protocol::Request;

use super::config::{MOST_FORBIDDEN, ROOTS_CONNECTIONS, UserLimits};

/// A request that looks at every task of the node or at every file of a user costs as much as so many others.
pub const COSTLY: u32 = 5;

/// Who has asked nothing for so many seconds may ask as much as those allow at once.
const BURST_SECONDS: i64 = 5;

/// What a request costs, in requests.
#[must_use]
pub fn cost(request: &Request, descriptors: usize) -> u32 {
    match request {
        // What is too much of it costs: a session that hands over must not make the next one's launch wait.
        Request::Audit(_) => 0,
        Request::Register(_)
        | Request::Status { .. }
        | Request::Open { .. }
        | Request::Mark { .. } => 1,
        Request::Forbid { .. } => 2 + u32::try_from(descriptors / 25).unwrap_or(u32::MAX),
        Request::Begin | Request::End | Request::Files { .. } => COSTLY,
    }
}

/// What is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// There is room.
    Room,
    /// The user has as many as one may have.
    User(u32),
    /// All together have as many as there may be.
    All(u32),
}

/// What one user has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    connections: u32,
    traces: u32,
    forbidden: u32,
    /// Requests that may still come, in thousandths; below 0: the user waits.
    requests: i64,
}

/// What one user may have of so many, of which others have some: half of what those leave. So a few users cannot
/// take all of it, and each gets less the less there is.
fn part(most: u32, others: u32) -> u32 {
    most.saturating_sub(others).div_ceil(2)
}

/// What all have. It is told what begins and ends, and asked before.
#[derive(Debug)]
pub struct Usage {
    limits: UserLimits,
    shares: BTreeMap<u32, Share>,
    all: Share,
}

impl Usage {
    /// Nobody has anything.
    #[must_use]
    pub fn new(limits: UserLimits) -> Self {
        Self {
            limits,
            shares: BTreeMap::new(),
            all: Share::default(),
        }
    }

    /// Other limits from now on. Who has more already keeps it.
    pub fn limit(&mut self, limits: UserLimits) {
        self.limits = limits;
    }

    /// Requests that a user may make at once, in thousandths: all tasks of a step begin together.
    fn full(&self) -> i64 {
        1000 * i64::from(self.limits.requests_per_second) * BURST_SECONDS
    }

    fn share(&mut self, uid: u32) -> &mut Share {
        let full = self.full();
        self.shares.entry(uid).or_insert(Share {
            requests: full,
            ..Share::default()
        })
    }

    /// Whether the user may have one more connection. Some are kept for root.
    pub fn connection(&mut self, uid: u32) -> Verdict {
        let limits = self.limits;
        if uid == 0 {
            return if self.all.connections >= limits.connections {
                Verdict::All(limits.connections)
            } else {
                Verdict::Room
            };
        }
        if self.share(uid).connections >= limits.connections_per_user {
            return Verdict::User(limits.connections_per_user);
        }
        if self.all.connections + ROOTS_CONNECTIONS >= limits.connections {
            return Verdict::All(limits.connections);
        }
        Verdict::Room
    }

    /// A connection begins.
    pub fn connected(&mut self, uid: u32) {
        self.share(uid).connections += 1;
        self.all.connections += 1;
    }

    /// A connection has ended.
    pub fn disconnected(&mut self, uid: u32) {
        let share = self.share(uid);
        share.connections = share.connections.saturating_sub(1);
        self.all.connections = self.all.connections.saturating_sub(1);
    }

    /// Whether the user may have one more trace.
    pub fn trace(&mut self, uid: u32) -> Verdict {
        let limits = self.limits;
        let own = self.share(uid).traces;
        if own >= limits.traces_per_user {
            return Verdict::User(limits.traces_per_user);
        }
        if own >= part(limits.traces, self.all.traces.saturating_sub(own)) {
            return Verdict::All(limits.traces);
        }
        Verdict::Room
    }

    /// A trace begins.
    pub fn traced(&mut self, uid: u32) {
        self.share(uid).traces += 1;
        self.all.traces += 1;
    }

    /// A trace has ended, with so many forbidden things.
    pub fn untraced(&mut self, uid: u32, forbidden: u32) {
        let share = self.share(uid);
        share.traces = share.traces.saturating_sub(1);
        share.forbidden = share.forbidden.saturating_sub(forbidden);
        self.all.traces = self.all.traces.saturating_sub(1);
        self.all.forbidden = self.all.forbidden.saturating_sub(forbidden);
    }

    /// Whether so many more things may be forbidden in the user's traces.
    pub fn forbidden(&mut self, uid: u32, more: u32) -> Verdict {
        let most = self.limits.forbidden_per_user;
        let own = self.share(uid).forbidden;
        let all = own.saturating_add(more);
        if all > most {
            return Verdict::User(most);
        }
        if all > part(MOST_FORBIDDEN, self.all.forbidden.saturating_sub(own)) {
            return Verdict::All(MOST_FORBIDDEN);
        }
        Verdict::Room
    }

    /// Whether so many more would take more than half of what the user may have: the other half is for sessions,
    /// and not for the steps of one.
    pub fn crowded(&mut self, uid: u32, traces: u32, forbidden: u32) -> bool {
        let limits = self.limits;
        let own = *self.share(uid);
        let others = self.all.traces.saturating_sub(own.traces);
        let most = limits.traces_per_user.min(part(limits.traces, others));
        let others = self.all.forbidden.saturating_sub(own.forbidden);
        let files = limits.forbidden_per_user.min(part(MOST_FORBIDDEN, others));
        own.traces.saturating_add(traces) > most.div_ceil(2)
            || own.forbidden.saturating_add(forbidden) > files.div_ceil(2)
    }

    /// So many more things are forbidden.
    pub fn forbade(&mut self, uid: u32, more: u32) {
        self.share(uid).forbidden += more;
        self.all.forbidden += more;
    }

    /// So many things are forbidden no more, in a trace that goes on.
    pub fn pardoned(&mut self, uid: u32, less: u32) {
        let share = self.share(uid);
        share.forbidden = share.forbidden.saturating_sub(less);
        self.all.forbidden = self.all.forbidden.saturating_sub(less);
    }

    /// Whether the user may ask now, or has to wait.
    pub fn may_ask(&mut self, uid: u32) -> bool {
        self.share(uid).requests > 0
    }

    /// The user has asked, for as much as so many requests cost.
    pub fn asked(&mut self, uid: u32, cost: u32) {
        self.share(uid).requests -= 1000 * i64::from(cost);
    }

    /// The user's request has taken that much of the processor: each millisecond counts as one more.
    pub fn took(&mut self, uid: u32, time: Duration) {
        self.asked(uid, u32::try_from(time.as_millis()).unwrap_or(u32::MAX));
    }

    /// Time has passed: users may ask again. Those of whom nothing is left are forgotten.
    pub fn pass(&mut self, time: Duration) {
        let rate = i64::from(self.limits.requests_per_second);
        let full = self.full();
        let more = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let more = more.saturating_mul(rate);
        self.shares.retain(|_, share| {
            share.requests = share.requests.saturating_add(more).min(full);
            share.connections + share.traces + share.forbidden > 0 || share.requests < full
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn few() -> Usage {
        Usage::new(UserLimits {
            connections: ROOTS_CONNECTIONS + 3,
            connections_per_user: 2,
            traces: 3,
            traces_per_user: 2,
            forbidden_per_user: 10,
            requests_per_second: 10,
            ..UserLimits::default()
        })
    }

    #[test]
    fn one_user_cannot_take_the_connections_of_others() {
        let mut usage = few();
        for _ in 0..2 {
            assert_eq!(usage.connection(1), Verdict::Room);
            usage.connected(1);
        }
        assert_eq!(usage.connection(1), Verdict::User(2));
        assert_eq!(usage.connection(2), Verdict::Room);
        usage.connected(2);
        assert_eq!(usage.connection(2), Verdict::All(ROOTS_CONNECTIONS + 3));
        assert_eq!(usage.connection(0), Verdict::Room, "root has its own");
        usage.disconnected(1);
        assert_eq!(usage.connection(2), Verdict::Room);
    }

    #[test]
    fn traces_and_what_is_forbidden_are_bounded() {
        let mut usage = few();
        usage.traced(1);
        usage.traced(1);
        assert_eq!(usage.trace(1), Verdict::User(2));
        assert_eq!(usage.forbidden(1, 11), Verdict::User(10));
        usage.forbade(1, 10);
        assert_eq!(usage.forbidden(1, 1), Verdict::User(10));
        assert_eq!(usage.forbidden(2, 10), Verdict::Room);
        usage.untraced(1, 10);
        assert_eq!(usage.forbidden(1, 10), Verdict::Room);
        usage.traced(2);
        usage.traced(2);
        assert_eq!(usage.trace(3), Verdict::All(3));
    }

    #[test]
    fn a_few_users_cannot_take_all_of_it() {
        let mut usage = Usage::new(UserLimits::default());
        // Each of them takes as much as there is to be had.
        for uid in 1..=10 {
            while usage.trace(uid) == Verdict::Room {
                usage.traced(uid);
            }
            for files in [4096, 512, 64, 8, 1] {
                while usage.forbidden(uid, files) == Verdict::Room {
                    usage.forbade(uid, files);
                }
            }
        }
        let (mut traces, mut files) = (usage.all.traces, usage.all.forbidden);
        assert!(traces < UserLimits::default().traces, "{traces}");
        assert!(files < MOST_FORBIDDEN, "{files}");
        assert_eq!(usage.trace(100), Verdict::Room);
        // One of them ends: the next one has room again.
        traces = usage.shares[&1].traces;
        files = usage.shares[&1].forbidden;
        usage.untraced(1, files);
        (1..traces).for_each(|_| usage.untraced(1, 0));
        assert_eq!(usage.forbidden(100, files / 4), Verdict::Room);
    }

    #[test]
    fn half_of_it_is_for_other_sessions() {
        let mut usage = few();
        assert!(!usage.crowded(1, 1, 5));
        assert!(usage.crowded(1, 1, 6));
        assert!(usage.crowded(1, 2, 0));
        usage.traced(1);
        assert!(usage.crowded(1, 1, 0));
        assert!(!usage.crowded(1, 0, 0));
        assert!(!usage.crowded(2, 1, 0));
    }

    #[test]
    fn who_asks_too_often_waits_and_nobody_else_does() {
        let mut usage = few();
        for _ in 0..50 {
            assert!(usage.may_ask(1));
            usage.asked(1, 1);
        }
        assert!(!usage.may_ask(1));
        assert!(usage.may_ask(2));
        usage.asked(2, 50 + COSTLY);
        assert!(!usage.may_ask(2));
        usage.pass(Duration::from_millis(100));
        assert!(usage.may_ask(1));
        assert!(!usage.may_ask(2), "a costly request waits for longer");
        usage.pass(Duration::from_secs(10));
        assert!(usage.may_ask(2));
        usage.pass(Duration::from_secs(10));
        assert!(usage.shares.is_empty(), "nobody is remembered for ever");
    }
}
