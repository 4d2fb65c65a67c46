//! Generates a source tree from a seed: units with functions, and programs that print a known
//! number. A C tree also has a configure script with probes, and a Makefile.

mod rust;

use std::fmt::{self, Write};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::error::{Error, Result};

const FUNCTIONS: usize = 24;
const PROGRAMS: u64 = 5;

/// Headers and functions that the configure script probes. The last entries of each list do not
/// exist.
const HEADERS: [&str; 10] = [
    "stdio.h",
    "stdlib.h",
    "string.h",
    "unistd.h",
    "fcntl.h",
    "errno.h",
    "sys/stat.h",
    "sys/mount.h",
    "ufs/ufs_mount.h",
    "rpc/auth_des.h",
];
const CALLS: [&str; 8] =
    ["memcpy", "strlen", "open", "stat", "getpid", "fork", "clnt_spcreateerror", "plock2"];

/// The parameters of a generated tree.
#[derive(Clone, Debug)]
pub(super) struct SourceTree {
    pub seed: u64,
    pub units: u64,
    pub probes: u64,
    pub language: Language,
}

/// The programming language of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    C,
    Rust,
}

impl fmt::Display for Language {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::C => "C",
            Self::Rust => "Rust",
        })
    }
}

/// A generated function. It computes `x = (x * factor + summand) ^ (x >> shift)`, `times` times.
#[derive(Clone, Copy, Debug)]
struct Function {
    factor: u32,
    summand: u32,
    shift: u32,
    times: u32,
}

impl Function {
    fn draw(random: &mut Pcg64) -> Self {
        Self {
            factor: random.random::<u32>() | 1,
            summand: random.random(),
            shift: random.random_range(1..31),
            times: random.random_range(1..20),
        }
    }

    fn of(self, mut x: u32) -> u32 {
        for _ in 0..self.times {
            x = x.wrapping_mul(self.factor).wrapping_add(self.summand) ^ (x >> self.shift);
        }
        x
    }

    fn source(self, name: &str) -> String {
        let Self { factor, summand, shift, times } = self;
        format!(
            "static unsigned {name}(unsigned x)\n{{\n    int i;\n\n    \
             for (i = 0; i < {times}; i++)\n        \
             x = (x * {factor}u + {summand}u) ^ (x >> {shift});\n    return x;\n}}\n\n"
        )
    }
}

impl SourceTree {
    /// Writes all files into a directory.
    pub fn write(&self, directory: &Path) -> Result<()> {
        match self.language {
            Language::C => self.write_c(directory),
            Language::Rust => self.write_rust(directory),
        }
    }

    fn write_c(&self, directory: &Path) -> Result<()> {
        let file = |name: &str, text: String| {
            let path = directory.join(name);
            fs::write(&path, text).map_err(Error::file(&path))
        };
        for unit in 0..self.units {
            file(&format!("unit_{unit}.c"), self.unit_source(unit))?;
        }
        for program in 0..PROGRAMS {
            file(&format!("program_{program}.c"), self.program_source(program))?;
        }
        file("common.h", self.header())?;
        file("Makefile", self.makefile())?;
        file("configure", self.configure())?;
        let configure = directory.join("configure");
        fs::set_permissions(&configure, fs::Permissions::from_mode(0o755))
            .map_err(Error::file(&configure))
    }

    /// Returns the path of every built program, and the number that it prints.
    pub fn programs(&self) -> Vec<(String, u64)> {
        let run = |program: u64| {
            let functions = (0..self.units).flat_map(|unit| self.functions(unit));
            u64::from(functions.fold(program as u32, |x, function| function.of(x)))
        };
        let place = match self.language {
            Language::C => "program_",
            Language::Rust => "target/debug/program_",
        };
        (0..PROGRAMS).map(|program| (format!("{place}{program}"), run(program))).collect()
    }

    fn functions(&self, unit: u64) -> Vec<Function> {
        let mut random = Pcg64::seed_from_u64(self.seed ^ (unit << 20));
        (0..FUNCTIONS).map(|_| Function::draw(&mut random)).collect()
    }

    fn unit_source(&self, unit: u64) -> String {
        let mut text = "#include \"config.h\"\n#include \"common.h\"\n\n".to_owned();
        let mut calls = String::new();
        for (number, function) in self.functions(unit).into_iter().enumerate() {
            text += &function.source(&format!("mix_{number}"));
            add(&mut calls, format_args!("    x = mix_{number}(x);\n"));
        }
        text + &format!("unsigned unit_{unit}(unsigned x)\n{{\n{calls}    return x;\n}}\n")
    }

    fn program_source(&self, program: u64) -> String {
        let mut calls = String::new();
        for unit in 0..self.units {
            add(&mut calls, format_args!("    x = unit_{unit}(x);\n"));
        }
        format!(
            "#include <stdio.h>\n#include \"config.h\"\n#include \"common.h\"\n\n\
             int main(void)\n{{\n    unsigned x = {program};\n\n{calls}    \
             printf(\"%u\\n\", x);\n    return 0;\n}}\n"
        )
    }

    fn header(&self) -> String {
        let mut text = "#ifndef COMMON_H\n#define COMMON_H\n\n".to_owned();
        for unit in 0..self.units {
            add(&mut text, format_args!("unsigned unit_{unit}(unsigned x);\n"));
        }
        text + "\n#endif\n"
    }

    fn makefile(&self) -> String {
        let names = |prefix: &str, count: u64, suffix: &str| {
            let names: Vec<String> = (0..count).map(|n| format!("{prefix}{n}{suffix}")).collect();
            names.join(" ")
        };
        format!(
            "CC = cc\nCFLAGS = -O1\nOBJECTS = {objects}\n\n\
             all: {programs} library.so\n\n\
             %.o: %.c common.h config.h\n\t$(CC) $(CFLAGS) -fPIC -c -o $@ $<\n\n\
             library.a: $(OBJECTS)\n\tar rcs $@ $(OBJECTS)\n\n\
             library.so: $(OBJECTS)\n\t$(CC) -shared -o $@ $(OBJECTS)\n\n\
             program_%: program_%.c library.a common.h config.h\n\
             \t$(CC) $(CFLAGS) -o $@ $< library.a\n",
            objects = names("unit_", self.units, ".o"),
            programs = names("program_", PROGRAMS, ""),
        )
    }

    /// Returns a configure script like autoconf's. Each probe writes a small source, compiles and
    /// links it, and removes both files.
    fn configure(&self) -> String {
        let mut text = "#!/bin/sh\n# Probes what the system has and writes config.h.\n\
            probe() {\n    if cc -o conftest conftest.c >/dev/null 2>&1; then\n        \
            echo \"#define HAVE_$1 1\" >> confdefs.h\n    else\n        \
            echo \"/* #undef HAVE_$1 */\" >> confdefs.h\n    fi\n    \
            rm -f conftest conftest.c\n}\n: > confdefs.h\n"
            .to_owned();
        for number in 0..self.probes as usize {
            let source = if number % 2 == 0 {
                let header = HEADERS[number / 2 % HEADERS.len()];
                format!("#include <{header}>\nint main(void) {{ return 0; }}")
            } else {
                let call = CALLS[number / 2 % CALLS.len()];
                format!("char {call}();\nint main(void) {{ return (int)(long)&{call}; }}")
            };
            add(
                &mut text,
                format_args!("cat > conftest.c <<'END'\n{source}\nEND\nprobe {number}\n"),
            );
        }
        text + "mv confdefs.h config.h\n"
    }
}

/// Appends formatted text to a string. The error is ignored, because writing to a string can't
/// fail.
fn add(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).unwrap_or_default();
}
