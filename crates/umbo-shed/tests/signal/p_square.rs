//! P² (Jain and Chlamtac 1985): a quantile by five markers, as a peer of the slices.

/// The estimate of one quantile.
#[derive(Debug, Clone)]
pub(crate) struct PSquare {
    share: f64,
    heights: [f64; 5],
    positions: [f64; 5],
    seen: usize,
}

impl PSquare {
    pub(crate) const fn new(share: f64) -> Self {
        Self {
            share,
            heights: [0.0; 5],
            positions: [1.0, 2.0, 3.0, 4.0, 5.0],
            seen: 0,
        }
    }

    pub(crate) fn add(&mut self, value: f64) {
        if self.seen < 5 {
            self.heights[self.seen] = value;
            self.seen += 1;
            self.heights[..self.seen].sort_by(f64::total_cmp);
            return;
        }
        self.seen += 1;
        let cell = if value < self.heights[0] {
            self.heights[0] = value;
            0
        } else if value >= self.heights[4] {
            self.heights[4] = value;
            3
        } else {
            (0..4)
                .rfind(|&at| self.heights[at] <= value)
                .expect("the lowest is not above")
        };
        for position in &mut self.positions[cell + 1..] {
            *position += 1.0;
        }
        let shares = [
            0.0,
            self.share / 2.0,
            self.share,
            f64::midpoint(1.0, self.share),
            1.0,
        ];
        for (at, share) in shares.iter().enumerate().take(4).skip(1) {
            let desired = 1.0 + (self.seen - 1) as f64 * share;
            self.adjust(at, desired - self.positions[at]);
        }
    }

    /// None below five values.
    pub(crate) fn value(&self) -> Option<f64> {
        (self.seen >= 5).then_some(self.heights[2])
    }

    fn adjust(&mut self, at: usize, lag: f64) {
        let (heights, positions) = (&self.heights, &self.positions);
        let after = positions[at + 1] - positions[at];
        let before = positions[at - 1] - positions[at];
        if !(lag >= 1.0 && after > 1.0 || lag <= -1.0 && before < -1.0) {
            return;
        }
        let step = lag.signum();
        let slope_after = (heights[at + 1] - heights[at]) / after;
        let slope_before = (heights[at - 1] - heights[at]) / before;
        let parabolic = heights[at]
            + step / (after - before)
                * ((step - before) * slope_after + (after - step) * slope_before);
        self.heights[at] = if heights[at - 1] < parabolic && parabolic < heights[at + 1] {
            parabolic
        } else if step > 0.0 {
            heights[at] + slope_after
        } else {
            heights[at] - slope_before
        };
        self.positions[at] += step;
    }
}
