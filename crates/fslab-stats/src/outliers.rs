//! Marks outliers. They are included in every figure; the mark only draws the reader's attention.

use super::summary::median;

/// Modified z-score above which a value is marked (Iglewicz and Hoaglin 1993, "How to Detect and
/// Handle Outliers").
pub const MODIFIED_Z_MOST: f64 = 3.5;

/// Median absolute deviation of a normal distribution, divided by its standard deviation.
const MAD_OF_DEVIATION: f64 = 0.6745;

/// Mean absolute deviation of a normal distribution, divided by its standard deviation. Iglewicz
/// and Hoaglin use it if the median absolute deviation is 0.
const MEAN_OF_DEVIATION: f64 = 1.0 / 1.253_314;

/// Returns, for each value, whether it is an outlier: farther from the median than
/// [`MODIFIED_Z_MOST`] allows. The unit is the median absolute deviation, because outliers hardly
/// change it; they would increase a standard deviation.
#[must_use]
pub fn outliers(values: &[f64]) -> Vec<bool> {
    let Some(middle) = median(values) else { return Vec::new() };
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let mad = median(&distances).unwrap_or(0.0);
    let unit = if mad > 0.0 {
        mad / MAD_OF_DEVIATION
    } else {
        distances.iter().sum::<f64>() / distances.len() as f64 / MEAN_OF_DEVIATION
    };
    distances.iter().map(|distance| unit > 0.0 && distance / unit > MODIFIED_Z_MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::outliers;

    /// Median 2.45 and MAD 0.2: the modified z-scores of the last two are 19.4 and 19.7.
    #[test]
    fn outliers_that_mask_each_other_are_found() {
        let marks = outliers(&[2.1, 2.6, 2.4, 2.5, 2.3, 2.1, 2.3, 2.6, 8.2, 8.3]);
        assert_eq!(marks.iter().filter(|mark| **mark).count(), 2);
        assert!(marks[8] && marks[9]);
    }

    #[test]
    fn one_outlier_among_equal_values_is_found() {
        assert_eq!(outliers(&[]), Vec::<bool>::new());
        assert!(outliers(&[1.0; 5]).iter().all(|mark| !mark));
        let mut values = [1.0; 12];
        values[4] = 2.0;
        assert_eq!(outliers(&values).iter().position(|mark| *mark), Some(4));
    }
}
