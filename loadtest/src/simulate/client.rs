//! Clients in a closed loop: what each is doing, and how well it is treated.

use std::time::Duration;

use umbo_quota::{Rejection, RetryTicket};

use super::settle_error::Costs;
use crate::random::Random;

/// Longest time from the moment a client is to ask again until it does: its own timer's coarseness
/// and the way to the pod.
const LAG_NS: u64 = 2_000_000;
/// After what a disobedient client asks again, whatever it was told.
const DISOBEDIENT_NS: u64 = 5_000_000;

/// One client.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// Index of its caller.
    pub(crate) caller: u32,
    /// The pod it is connected to.
    pub(crate) pod: u32,
    /// What the request costs.
    pub(crate) costs: Costs,
    /// The retry ticket of its last rejection.
    pub(crate) ticket: Option<RetryTicket>,
    think_ns: f64,
    is_obedient: bool,
    /// Times its request was rejected; none where it has no request.
    rejections: Option<u32>,
}

/// All clients of a run, with what they met with.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: Vec<Client>,
    /// Of the clients that obey.
    pub(crate) obedient: Treatment,
    /// Of those that do not.
    pub(crate) disobedient: Treatment,
}

/// How requests fared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Treatment {
    /// Requests that were admitted in the end.
    pub(crate) successes: u64,
    /// Rejections of them.
    pub(crate) rejections: u64,
    /// Requests that were rejected at least once and are admitted by now.
    pub(crate) retried: u64,
    /// Requests that were rejected once, and admitted when they came back for the first time.
    pub(crate) first_retries: u64,
    /// The shortest wait in any rejection.
    pub(crate) wait_least: Option<Duration>,
    /// The longest.
    pub(crate) wait_most: Duration,
}

impl Treatment {
    /// Returns rejections a success.
    pub(crate) fn rejections_a_success(&self) -> f64 {
        self.rejections as f64 / self.successes as f64
    }

    /// Returns the share of rejected requests that were admitted on their first retry.
    pub(crate) fn first_retry_share(&self) -> f64 {
        self.first_retries as f64 / self.retried as f64
    }
}

impl Client {
    /// Makes a client at rest.
    pub(crate) const fn new(caller: u32, pod: u32, think_ns: f64, is_obedient: bool) -> Self {
        Self {
            caller,
            pod,
            costs: Costs {
                declared: 0,
                settled: 0,
            },
            ticket: None,
            think_ns,
            is_obedient,
            rejections: None,
        }
    }
}

impl Clients {
    /// Adds a client and returns its index.
    pub(crate) fn add(&mut self, client: Client) -> u32 {
        self.all.push(client);
        self.all.len() as u32 - 1
    }

    /// Returns a client.
    pub(crate) fn get(&self, index: u32) -> &Client {
        &self.all[index as usize]
    }

    /// Returns whether a client has no request.
    pub(crate) fn is_at_rest(&self, index: u32) -> bool {
        self.get(index).rejections.is_none()
    }

    /// Gives a client a request.
    pub(crate) fn begin(&mut self, index: u32, costs: Costs) {
        let client = &mut self.all[index as usize];
        (client.costs, client.ticket) = (costs, None);
        client.rejections = Some(0);
    }

    /// Records that its request was admitted.
    pub(crate) fn admitted(&mut self, index: u32) {
        let rejections = self.get(index).rejections.unwrap_or(0);
        let treatment = self.treatment(index);
        treatment.successes += 1;
        treatment.rejections += u64::from(rejections);
        treatment.retried += u64::from(rejections > 0);
        treatment.first_retries += u64::from(rejections == 1);
    }

    /// Records that its request was rejected, and returns after what time it asks again. A client that
    /// obeys keeps the ticket.
    pub(crate) fn rejected(
        &mut self,
        index: u32,
        rejection: &Rejection,
        random: &mut Random,
    ) -> u64 {
        let wait = rejection.wait;
        let treatment = self.treatment(index);
        treatment.wait_least = Some(treatment.wait_least.map_or(wait, |least| least.min(wait)));
        treatment.wait_most = treatment.wait_most.max(wait);
        let client = &mut self.all[index as usize];
        client.rejections = client.rejections.map(|rejections| rejections + 1);
        let told_ns = if client.is_obedient {
            client.ticket = rejection.ticket;
            wait.as_nanos() as u64
        } else {
            DISOBEDIENT_NS
        };
        told_ns + random.below(LAG_NS)
    }

    /// Records that its request was answered, and returns how long it rests.
    pub(crate) fn answered(&mut self, index: u32, random: &mut Random) -> u64 {
        let client = &mut self.all[index as usize];
        client.rejections = None;
        (client.think_ns * (0.5 + random.unit())) as u64
    }

    fn treatment(&mut self, index: u32) -> &mut Treatment {
        if self.get(index).is_obedient {
            &mut self.obedient
        } else {
            &mut self.disobedient
        }
    }
}
