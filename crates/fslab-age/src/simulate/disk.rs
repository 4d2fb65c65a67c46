//! Models the cost of a layout on a disk: seeks, rotation, transfer and a track buffer. All results
//! are modelled, not measured, and must be labelled as such.

/// A modelled disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// Name of the disk on command lines.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The rotating parts; `None` for a disk that does not rotate.
    spindle: Option<Spindle>,
    /// Fixed overhead of each request, in microseconds.
    request_us: f64,
    /// Transfer rate of a disk that does not rotate, in bytes per microsecond.
    bytes_per_us: f64,
    /// Maximum size of a request, in bytes.
    pub request_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Spindle {
    turn_us: f64,
    track_bytes: u64,
    heads: u64,
    cylinders: u64,
    /// Seek time to the next cylinder, in microseconds.
    seek_min_us: f64,
    /// Average seek time over all pairs of cylinders, in microseconds.
    seek_average_us: f64,
}

/// All modelled disks.
pub const DISKS: &[Disk] = &[
    Disk {
        name: "fujitsu-m2694es",
        help: "the disk of Smith and Seltzer (1997): 1 GB, 5400 revolutions per minute, 1818 \
               cylinders of 15 tracks, 9.5 ms seek",
        spindle: Some(Spindle {
            turn_us: 60e6 / 5400.0,
            track_bytes: 94 * 512,
            heads: 15,
            cylinders: 1818,
            seek_min_us: 2000.0,
            seek_average_us: 9500.0,
        }),
        request_us: 700.0,
        bytes_per_us: 0.0,
        request_bytes: 56 << 10,
    },
    Disk {
        name: "sata-7200",
        help: "a SATA disk of 2 TB, 7200 revolutions per minute, 8.5 ms seek",
        spindle: Some(Spindle {
            turn_us: 60e6 / 7200.0,
            track_bytes: 1_250_000,
            heads: 4,
            cylinders: 400_000,
            seek_min_us: 800.0,
            seek_average_us: 8500.0,
        }),
        request_us: 50.0,
        bytes_per_us: 0.0,
        request_bytes: 1 << 20,
    },
    Disk {
        name: "ssd",
        help: "a SATA SSD: 80 microseconds per request, 500 MB/s",
        spindle: None,
        request_us: 80.0,
        bytes_per_us: 500.0,
        request_bytes: 1 << 20,
    },
];

/// The state of a disk's arm and platters.
pub struct Arm<'a> {
    disk: &'a Disk,
    now_us: f64,
    cylinder: u64,
    /// The end of the last request, in bytes.
    end: Option<u64>,
}

impl Disk {
    /// Returns the disk with a name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        DISKS.iter().find(|disk| disk.name == name)
    }

    /// Returns the state of the disk before its first request.
    #[must_use]
    pub fn arm(&self) -> Arm<'_> {
        Arm { disk: self, now_us: 0.0, cylinder: 0, end: None }
    }
}

impl Arm<'_> {
    /// Returns the elapsed time in microseconds.
    #[must_use]
    pub fn elapsed_us(&self) -> f64 {
        self.now_us
    }

    /// Reads contiguous bytes. A request that continues the previous one is served from the track
    /// buffer, so it costs only the transfer.
    pub fn read(&mut self, at: u64, bytes: u64) {
        self.transfer(at, bytes, true);
    }

    /// Writes contiguous bytes, in requests of the maximum size. The track buffer is not used, so
    /// each request waits for its sector.
    pub fn write(&mut self, at: u64, bytes: u64) {
        self.transfer(at, bytes, false);
    }

    fn transfer(&mut self, at: u64, bytes: u64, buffered: bool) {
        let (mut at, mut rest) = (at, bytes);
        while rest > 0 {
            let length = rest.min(self.disk.request_bytes);
            self.request(at, length, buffered);
            at += length;
            rest -= length;
        }
    }

    fn request(&mut self, at: u64, bytes: u64, buffered: bool) {
        let Some(spindle) = self.disk.spindle else {
            self.now_us += self.disk.request_us + bytes as f64 / self.disk.bytes_per_us;
            return;
        };
        if !(buffered && self.end == Some(at)) {
            self.now_us += self.disk.request_us;
            self.go_to(&spindle, at);
        }
        let tracks = (at + bytes) / spindle.track_bytes - at / spindle.track_bytes;
        self.now_us += bytes as f64 / spindle.track_bytes as f64 * spindle.turn_us;
        // A track switch takes half of the minimum seek time. It loses no rotation, because sectors
        // are skewed.
        self.now_us += tracks as f64 * spindle.seek_min_us / 2.0;
        self.end = Some(at + bytes);
        self.cylinder = spindle.cylinder_of(at + bytes);
    }

    /// Moves the arm to the cylinder and waits for the sector.
    fn go_to(&mut self, spindle: &Spindle, at: u64) {
        self.now_us += spindle.seek_us(self.cylinder.abs_diff(spindle.cylinder_of(at)));
        let wanted = (at % spindle.track_bytes) as f64 / spindle.track_bytes as f64;
        let turned = (self.now_us / spindle.turn_us).fract();
        self.now_us += (wanted - turned).rem_euclid(1.0) * spindle.turn_us;
    }
}

impl Spindle {
    fn cylinder_of(&self, at: u64) -> u64 {
        (at / (self.track_bytes * self.heads)).min(self.cylinders - 1)
    }

    /// Returns the seek time, which grows with the square root of the distance. Over all pairs of
    /// cylinders, the average of this root is 8/15 of the root of the number of cylinders. This
    /// determines the constant factor.
    fn seek_us(&self, cylinders: u64) -> f64 {
        if cylinders == 0 {
            return 0.0;
        }
        let factor = (self.seek_average_us - self.seek_min_us)
            / ((self.cylinders as f64).sqrt() * 8.0 / 15.0);
        self.seek_min_us + factor * ((cylinders - 1) as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modelled_seeks_have_the_average_time_of_the_disk() {
        let spindle = DISKS[0].spindle.unwrap();
        let mut sum = 0.0;
        for from in (0..spindle.cylinders).step_by(7) {
            for to in (0..spindle.cylinders).step_by(7) {
                sum += spindle.seek_us(from.abs_diff(to));
            }
        }
        let pairs = spindle.cylinders.div_ceil(7).pow(2) as f64;
        assert!((sum / pairs / 9500.0 - 1.0).abs() < 0.02, "{}", sum / pairs);
    }

    #[test]
    fn scattered_reads_take_longer_than_a_sequential_one() {
        for disk in DISKS {
            let (mut together, mut apart) = (disk.arm(), disk.arm());
            together.read(0, 100 * 8192);
            for block in 0..100 {
                apart.read(block * 7_000_000 % (1 << 30), 8192);
            }
            assert!(apart.elapsed_us() > 2.0 * together.elapsed_us(), "{}", disk.name);
        }
    }
}
