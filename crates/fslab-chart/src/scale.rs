//! Axes: map values to positions, and choose the tick values.

/// An axis from `low` to `high`, `length` pixels long from `start`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// Position of the axis's low end, in pixels.
    pub start: f64,
    /// Length in pixels.
    pub length: f64,
}

impl Scale {
    /// Makes a linear axis from 0 that contains all values.
    pub fn linear(values: &[f64], start: f64, length: f64) -> Self {
        let (_, high) = range(values);
        Self::between((0.0, high * 1.05), start, length)
    }

    /// Makes a linear axis that contains 0 and all values, which may be negative.
    pub fn spanning(values: &[f64], start: f64, length: f64) -> Self {
        let (low, high) = range(values);
        let high = if high > 0.0 { high * 1.05 } else { 0.0 };
        let low = if low < 0.0 { low * 1.05 } else { 0.0 };
        Self::between((low, if high > low { high } else { low + 1.0 }), start, length)
    }

    /// Makes a linear axis from `low` to `high`.
    pub fn between((low, high): (f64, f64), start: f64, length: f64) -> Self {
        Self { low, high, logarithmic: false, start, length }
    }

    /// Whether the values span more than a factor of 30, so that most would be crowded together on
    /// a linear axis.
    #[must_use]
    pub fn is_wide(values: &[f64]) -> bool {
        let (low, high) = range(values);
        low > 0.0 && high / low > 30.0
    }

    /// Makes a logarithmic axis that contains all values.
    pub fn logarithmic(values: &[f64], start: f64, length: f64) -> Self {
        let (low, high) = range(values);
        let low = if low > 0.0 { low } else { high / 1e3 };
        Self { low: low / 1.06, high: high * 1.06, logarithmic: true, start, length }
    }

    /// Makes a logarithmic axis of ratios that contains all values and 1, with some room around 1.
    pub fn of_ratios(values: &[f64], start: f64, length: f64) -> Self {
        let (low, high) = range(values);
        let (low, high) = ((low / 1.04).min(0.9), (high * 1.04).max(1.0 / 0.9));
        Self { low, high, logarithmic: true, start, length }
    }

    /// Returns the position of a value, in pixels. Values beyond the axis lie at its ends.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.start + share.clamp(0.0, 1.0) * self.length
    }

    /// Whether a value lies within the axis.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns at most seven round values within the axis.
    #[must_use]
    pub fn ticks(&self) -> Vec<f64> {
        if self.logarithmic { self.logarithmic_ticks() } else { self.linear_ticks() }
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let rough = (self.high - self.low) / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let (first, last) = ((self.low / step).ceil() as i64, (self.high / step).floor() as i64);
        (first..=last).map(|index| index as f64 * step).collect()
    }

    fn logarithmic_ticks(&self) -> Vec<f64> {
        // Each set contains fewer ticks than the one before. The first set with at most six ticks
        // is used.
        let fine: &[f64] =
            &[1.0, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        let sets = [fine, &[1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0], &[1.0, 2.0, 5.0], &[1.0]];
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let within = |factors: &[f64]| -> Vec<f64> {
            (first..=last)
                .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)))
                .filter(|value| (self.low..=self.high).contains(value))
                .collect()
        };
        let ticks = sets.into_iter().map(within).find(|ticks| ticks.len() <= 6);
        ticks.unwrap_or_else(|| within(&[1.0]).into_iter().step_by(2).collect())
    }
}

fn range(values: &[f64]) -> (f64, f64) {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    if low > high { (0.0, 1.0) } else { (low, if high > 0.0 { high } else { 1.0 }) }
}

#[cfg(test)]
mod tests {
    use super::Scale;

    #[test]
    fn linear_axes_begin_at_zero_and_have_round_ticks() {
        let scale = Scale::linear(&[0.2, 0.9], 10.0, 100.0);
        assert_eq!(scale.place(0.0), 10.0);
        let ticks = scale.ticks();
        assert!(ticks.len() >= 3 && ticks.len() <= 7, "{ticks:?}");
        assert!((ticks[1] - 0.2).abs() < 1e-12, "{ticks:?}");
    }

    #[test]
    fn ratio_axes_have_at_most_seven_ticks() {
        for high in [1.2, 3.0, 40.0, 1e4, 1e9] {
            let scale = Scale::of_ratios(&[0.97, high], 0.0, 100.0);
            let ticks = scale.ticks();
            assert!((1..=7).contains(&ticks.len()), "{high}: {ticks:?}");
            assert!(scale.place(1.0) > 0.0 && scale.place(1.0) < scale.place(high));
        }
    }

    #[test]
    fn empty_axes_have_finite_positions() {
        assert!(Scale::linear(&[], 0.0, 1.0).place(0.5).is_finite());
        assert!(Scale::logarithmic(&[0.0], 0.0, 1.0).place(0.0).is_finite());
    }
}
