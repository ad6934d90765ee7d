//! The drill: a server, its clients, and a look at its counters all along.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::outcome::{INTERVAL, Outcome};
use super::traffic::{Files, Traffic};
use crate::bench::lab::{Lab, UMBO, UMBO_ADMIN, Umbo};
use crate::failure::Failure;
use crate::load::Report;
use crate::load::client::{Client, Kind};
use crate::load::pace::Report as Paced;
use crate::load::scrape::scrape;
use crate::process::Cores;

/// Reads of single rows that the store was asked for.
pub(crate) const STORE_GETS: &str = r#"umbo_store_duration_seconds_count{operation="get""#;
/// Settings without the layer for hot keys.
pub(crate) const LAYER_OFF: &str = "[hotkey]\nenabled = false\n";
/// No quota is to stand between the attack and the layer that is tried here.
const NO_QUOTA: &str = r#"{"name":"default-caller","match":{"operations":["scan"]},"per":["caller"],"unit":"ru","rate":1000000}"#;

/// When what happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phases {
    /// Seconds of normal traffic before the attack.
    pub(crate) before: u64,
    /// Seconds of the attack.
    pub(crate) attack: u64,
    /// Seconds of normal traffic after it.
    pub(crate) after: u64,
}

/// A server under attack.
pub(crate) struct Drill<'a> {
    lab: &'a mut Lab,
    traffic: Traffic,
    files: Files,
    umbo: Umbo,
    turns: usize,
}

impl<'a> Drill<'a> {
    /// Starts a server on loaded data, with its layer for hot keys or without.
    pub(crate) fn open(
        lab: &'a mut Lab,
        data: &Path,
        cores: Cores,
        is_on: bool,
        traffic: &Traffic,
    ) -> Result<Self, Failure> {
        let settings = if is_on { "" } else { LAYER_OFF };
        let files = traffic.prepare(lab)?;
        let umbo = lab.umbo_with(data, cores, settings)?;
        lab.put_policy("default-caller", NO_QUOTA)?;
        lab.warm(UMBO)?;
        Ok(Self {
            lab,
            traffic: *traffic,
            files,
            umbo,
            turns: 0,
        })
    }

    /// Replaces the traffic from now on.
    pub(crate) fn change(&mut self, traffic: &Traffic) -> Result<(), Failure> {
        self.files = traffic.prepare(self.lab)?;
        self.traffic = *traffic;
        Ok(())
    }

    /// Lets it happen.
    pub(crate) fn run(&mut self, phases: &Phases) -> Result<Outcome, Failure> {
        let mut counters = Counters::begin(self.lab)?;
        let whole_s = phases.before + phases.attack + phases.after;
        let gets = self.pace(&self.files.gets, self.traffic.gets_rate, whole_s)?;
        let others = self.pace(&self.files.others, self.traffic.others_rate, whole_s)?;
        let begun = Instant::now();
        counters.begun = begun;
        let attack_at = begun + Duration::from_secs(phases.before);
        counters.look_until(self.lab, attack_at)?;
        let attack = self.attack(phases.attack)?;
        counters.look_until(self.lab, begun + Duration::from_secs(whole_s))?;
        let attack: Report = attack.report()?;
        let report = |client: Option<Client>| -> Result<Paced, Failure> {
            let report = client.map_or_else(|| Ok(Paced::default()), Client::report);
            report.map(|report: Paced| report.on_clock_of(begun))
        };
        let (gets, others) = (report(gets)?, report(others)?);
        counters.look(self.lab)?;
        self.turns += 1;
        Ok(Outcome {
            whole_s: whole_s as f64,
            attack_from_s: phases.before as f64,
            attack,
            gets,
            others,
            store_gets: counters.total(),
            looks: counters.looks,
        })
    }

    /// Ends the server.
    pub(crate) fn close(self) -> Result<(), Failure> {
        self.umbo.process.stop()
    }

    fn attack(&self, seconds: u64) -> Result<Client, Failure> {
        let arguments = [
            format!("--connections={}", self.traffic.connections),
            "--warm-up-ms=0".to_owned(),
            format!("--measure-ms={}", seconds * 1_000),
            format!("--sample-ms={}", INTERVAL.as_millis()),
            format!("--first={}", self.turns * 7_919),
            // The attack takes what it gets: that nothing is there is an answer, too.
            "--absent-succeeds".to_owned(),
        ];
        let to = (UMBO, self.files.attack.as_path(), Cores::Client);
        Client::start(Kind::Load, to, &arguments)
    }

    fn pace(&self, requests: &Path, rate: f64, seconds: u64) -> Result<Option<Client>, Failure> {
        if rate <= 0.0 {
            return Ok(None);
        }
        let arguments = [
            format!("--rate={rate}"),
            "--warm-up-ms=0".to_owned(),
            format!("--measure-ms={}", seconds * 1_000),
            format!("--first={}", self.turns * 7_919),
            "--moments".to_owned(),
        ];
        let to = (UMBO, requests, Cores::Client);
        Client::start(Kind::Pace, to, &arguments).map(Some)
    }
}

/// The server's count of reads of the store, and when it was what.
struct Counters {
    begun: Instant,
    /// Reads at the beginning.
    first: f64,
    /// Seconds from the beginning, and reads since then.
    looks: Vec<(f64, f64)>,
}

impl Counters {
    fn begin(lab: &Lab) -> Result<Self, Failure> {
        Ok(Self {
            begun: Instant::now(),
            first: scrape(UMBO_ADMIN, &lab.fields(), STORE_GETS)?,
            looks: Vec::new(),
        })
    }

    fn total(&self) -> f64 {
        self.looks.last().map_or(0.0, |look| look.1)
    }

    fn look(&mut self, lab: &Lab) -> Result<(), Failure> {
        let reads = scrape(UMBO_ADMIN, &lab.fields(), STORE_GETS)?;
        let at_s = self.begun.elapsed().as_secs_f64();
        self.looks.push((at_s, reads - self.first));
        Ok(())
    }

    fn look_until(&mut self, lab: &Lab, end: Instant) -> Result<(), Failure> {
        while Instant::now() + INTERVAL < end {
            sleep(INTERVAL);
            self.look(lab)?;
        }
        sleep(end.saturating_duration_since(Instant::now()));
        Ok(())
    }
}
