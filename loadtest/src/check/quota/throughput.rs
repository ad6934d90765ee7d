//! What quotas cost a real server: gets a second with policies that count them, and with none that does.

use std::cell::{Cell, RefCell};

use crate::bench::lab::{Lab, Target, UMBO};
use crate::bench::plan::Pairs;
use crate::check::plan::Plan;
use crate::check::server::open;
use crate::failure::Failure;
use crate::process::Cores;
use crate::verdict::{Bound, Verdict};

/// No policy counts a get: the one that is built in is replaced by one for scans.
const OFF: &str = r#"{"name":"default-caller","match":{"operations":["scan"]},"per":["caller"],"unit":"ru","rate":1000000}"#;
/// Policies that count every get and reject none.
const ON: [(&str, &str); 3] = [
    (
        "callers",
        r#"{"name":"callers","per":["caller"],"unit":"ru","rate":100000000}"#,
    ),
    (
        "namespaces",
        r#"{"name":"namespaces","per":["namespace"],"unit":"requests","rate":100000000}"#,
    ),
    (
        "shadow",
        r#"{"name":"shadow","per":["caller"],"unit":"read-bytes","rate":100000000000,"mode":"shadow"}"#,
    ),
];

/// Gets a second with policies that count them and with none that does.
pub(super) fn throughput(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut lab = open(plan)?;
    let data = lab.loaded()?;
    let umbo = lab.umbo(&data, Cores::Server)?;
    lab.put_policy("default-caller", OFF)?;
    lab.warm(UMBO)?;
    let requests = lab.gets(lab.rows)?;
    let target = Target {
        port: UMBO,
        requests: &requests,
        servers: &umbo.ids,
        cores: Cores::Client,
    };
    let rounds = lab.plan.rounds;
    let lab = RefCell::new(lab);
    let are_on = Cell::new(false);
    let turn = |round, on: bool| {
        if are_on.replace(on) != on {
            switch(&mut lab.borrow_mut(), on)?;
        }
        lab.borrow().turn(&target, round)
    };
    let pairs = Pairs::measure(
        rounds,
        |round| turn(round, true),
        |round| turn(round, false),
    )?;
    umbo.process.stop()?;
    Ok(vec![
        pairs.rate(
            "server: gets a second with quotas, of without",
            Bound::AtLeast(0.97),
        ),
        pairs.cpu("  processor time of a get", Bound::Nothing),
    ])
}

fn switch(lab: &mut Lab, on: bool) -> Result<(), Failure> {
    for (name, policy) in ON {
        if on {
            lab.put_policy(name, policy)?;
        } else {
            let request = lab.admin_request("DELETE", &format!("quotas/{name}"), b"");
            lab.send_once(UMBO, std::iter::once(request))?;
        }
    }
    Ok(())
}
