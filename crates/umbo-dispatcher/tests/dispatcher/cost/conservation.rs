//! Nothing is lost and nothing is charged twice: answers, ledger, buckets and metrics agree.

use umbo_types::RequestUnits;

use crate::cost::support::{TestDispatcher, by_caller};

/// A small generator; the run is the same every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Returns what the scrape counted, summed over operations.
async fn scraped(pod: &TestDispatcher) -> RequestUnits {
    let scrape = pod.scrape().await;
    let lines = scrape
        .lines()
        .filter(|line| line.starts_with("umbo_request_units_total{"));
    let values = lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap());
    values.fold(RequestUnits::ZERO, RequestUnits::saturating_add)
}

fn target(random: &mut Random) -> String {
    format!(
        "/v1/ns/listings/kv/p{}/s{}",
        random.below(5),
        random.below(5)
    )
}

#[tokio::test]
async fn the_sum_of_all_answers_is_the_ledger() {
    let pod = TestDispatcher::open(&[by_caller("plenty", "1000000", "1000000")]).await;
    let mut random = Random(11);
    let mut told = RequestUnits::ZERO;
    let mut rejected = 0;
    for step in 0..3_000_u64 {
        pod.store
            .set_time(std::time::Duration::from_micros(random.below(900)));
        let one = target(&mut random);
        let partition = format!("/v1/ns/listings/range/p{}", random.below(5));
        let value = vec![b'v'; random.below(9_000) as usize];
        let reply = match random.below(9) {
            0 => pod.ask("PUT", &one, &[], value).await,
            1 => pod.ask("DELETE", &one, &[], "").await,
            2 => pod.ask("PUT", &one, &[("if-none-match", "*")], value).await,
            3 => pod.ask("GET", &partition, &[], "").await,
            4 => {
                let lines = format!("{{\"pk\":\"p{step}\",\"v\":\"x\"}}\n{{\"pk\":\"p1\"}}\n");
                pod.ask("POST", "/v1/ns/listings/batch/write", &[], lines)
                    .await
            }
            5 => {
                let keys = "{\"keys\":[{\"pk\":\"p1\",\"sk\":\"s1\"},{\"pk\":\"p2\"}]}";
                pod.ask("POST", "/v1/ns/listings/batch/get", &[], keys)
                    .await
            }
            6 => {
                pod.ask("DELETE", &format!("{partition}?prefix=s1"), &[], "")
                    .await
            }
            7 => pod.ask("GET", &format!("{one}?what"), &[], "").await,
            _ => pod.ask("GET", &one, &[], "").await,
        };
        rejected += u64::from(reply.status == 429);
        let end = serde_json::from_slice::<serde_json::Value>(
            reply
                .body
                .rsplit(|byte| *byte == b'\n')
                .nth(1)
                .unwrap_or_default(),
        );
        if let Ok(line) = end
            && line["end"]["ru"].is_number()
        {
            assert_eq!(line["end"]["ru"], reply.units().as_f64());
        }
        told = told.saturating_add(reply.units());
    }
    assert_eq!(rejected, 0);
    assert_eq!(told, pod.ledger());
    assert_eq!(pod.quota.spent("plenty").cast_unsigned(), told.as_micros());
    assert_eq!(scraped(&pod).await, told);
    let by_shard = pod.quota.usage().shards;
    let by_shard = by_shard.iter().map(|usage| usage.charged.as_micros());
    assert_eq!(by_shard.sum::<u64>(), told.as_micros());
}

#[tokio::test]
async fn clients_that_leave_pay_once_the_store_was_asked() {
    let pod = TestDispatcher::open(&[by_caller("plenty", "1000000", "1000000")]).await;
    let mut random = Random(5);
    let mut told = RequestUnits::ZERO;
    for _ in 0..400 {
        let one = target(&mut random);
        let before = pod.ledger();
        match random.below(4) {
            0 => pod.ask_and_leave("GET", &one, ""),
            1 => pod.ask_and_leave("PUT", &one, "value"),
            2 => pod.ask_and_leave("GET", "/v1/ns/listings/range/p1", ""),
            _ => {
                let reply = pod.ask("PUT", &one, &[], "value").await;
                told = told.saturating_add(reply.units());
                continue;
            }
        }
        let paid = pod.ledger().saturating_sub(before);
        assert!(paid.as_micros() >= 1_000_000, "{paid}");
        told = told.saturating_add(paid);
    }
    assert_eq!(pod.quota.spent("plenty").cast_unsigned(), told.as_micros());
    assert_eq!(scraped(&pod).await, told);
}
