//! The scenarios: who asks for what, and what goes wrong when.

/// What a stream asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Get,
    Put,
    /// A page of a scan: six times the work of a get.
    Scan,
    /// A batch of a hundred rows of one partition: eleven times the work of a put.
    Batch,
}

/// Requests of one tier and caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub(super) tier: &'static str,
    pub(super) caller: &'static str,
    pub(super) asked: Asked,
    /// Requests a second.
    pub(super) rate: f64,
    /// Seconds from which and to which.
    pub(super) from_s: f64,
    pub(super) to_s: f64,
}

/// A scenario at its full length.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) streams: Vec<Stream>,
    /// As `umbo-loadtest modelled` takes them.
    pub(super) faults: Vec<String>,
    /// When it is wrong.
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) whole_s: f64,
}

/// A scenario.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Adds what is wrong.
    trouble: fn(&mut Plan),
}

/// Requests a second of each tier that are usual: little more than half of what the store can do.
const USUAL: [(&str, f64); 3] = [
    ("critical", 40.0),
    ("sheddable-plus", 240.0),
    ("sheddable", 120.0),
];

pub(super) const SCENARIOS: [Scenario; 7] = [
    Scenario {
        name: "spike",
        about: "ten times the traffic",
        trouble: |plan| plan.multiply(10.0),
    },
    Scenario {
        name: "stall",
        about: "one of four shards answers nothing",
        trouble: |plan| plan.fail("0:stall"),
    },
    Scenario {
        name: "slow-disk",
        about: "every call takes eight times as long",
        trouble: |plan| plan.fail("*:8"),
    },
    Scenario {
        name: "scan-storm",
        about: "jobs scan the namespace beside the usual traffic",
        trouble: |plan| plan.add("sheddable", "job", Asked::Scan, 160.0),
    },
    Scenario {
        name: "noisy-neighbour",
        about: "one caller sends five times what all others do",
        trouble: |plan| plan.add("sheddable-plus", "noisy", Asked::Get, 2_000.0),
    },
    Scenario {
        name: "bulk-at-peak",
        about: "uploads in batches at one and a half times the traffic",
        trouble: |plan| {
            plan.multiply(1.5);
            plan.add("sheddable", "job", Asked::Batch, 80.0);
        },
    },
    Scenario {
        name: "recovery",
        about: "five times the traffic on a store that is twice as slow, and then as usual",
        trouble: |plan| {
            // As far above what the store can do as the spike is.
            plan.multiply(5.0);
            plan.fail("*:2");
        },
    },
];

impl Scenario {
    /// Returns the plan: calm, trouble, calm.
    pub(super) fn plan(&self, calm_s: f64, trouble_s: f64) -> Plan {
        let whole_s = 2.0 * calm_s + trouble_s;
        let usual = |(tier, rate): (&'static str, f64)| {
            let of = |asked, share: f64| Stream {
                tier,
                caller: "web",
                asked,
                rate: rate * share,
                from_s: 0.0,
                to_s: whole_s,
            };
            [of(Asked::Get, 0.8), of(Asked::Put, 0.2)]
        };
        let mut plan = Plan {
            streams: USUAL.into_iter().flat_map(usual).collect(),
            faults: Vec::new(),
            from_s: calm_s,
            to_s: calm_s + trouble_s,
            whole_s,
        };
        (self.trouble)(&mut plan);
        plan
    }
}

/// Returns a plan of the usual traffic, and so many times as much for a while.
pub(super) fn steady(times: f64, calm_s: f64, seconds: f64) -> Plan {
    let usual = Scenario {
        name: "steady",
        about: "more of the usual traffic",
        trouble: |_| {},
    };
    let mut plan = usual.plan(calm_s, seconds);
    plan.multiply(times);
    plan
}

impl Plan {
    /// Adds as much of the usual traffic as makes it so many times as much.
    fn multiply(&mut self, factor: f64) {
        let usual = self.streams.clone();
        let (from_s, to_s) = (self.from_s, self.to_s);
        self.streams.extend(usual.into_iter().map(|stream| Stream {
            rate: stream.rate * (factor - 1.0),
            from_s,
            to_s,
            ..stream
        }));
    }

    fn add(&mut self, tier: &'static str, caller: &'static str, asked: Asked, rate: f64) {
        self.streams.push(Stream {
            tier,
            caller,
            asked,
            rate,
            from_s: self.from_s,
            to_s: self.to_s,
        });
    }

    fn fail(&mut self, fault: &str) {
        let (from_s, to_s) = (self.from_s, self.to_s);
        self.faults.push(format!("{fault}:{from_s}:{to_s}"));
    }
}
