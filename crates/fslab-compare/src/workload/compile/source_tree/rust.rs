//! Generates a source tree as a Rust package without dependencies.

use std::fs;
use std::path::Path;

use super::{Function, PROGRAMS, SourceTree, add};
use crate::error::{Error, Result};

/// The manifest. The package declares its own workspace, because cargo would search the directories
/// above the target for one.
const MANIFEST: &str = "[package]\nname = \"made\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n\
                        [workspace]\n";

impl SourceTree {
    pub(super) fn write_rust(&self, directory: &Path) -> Result<()> {
        let programs = directory.join("src/bin");
        fs::create_dir_all(&programs).map_err(Error::file(&programs))?;
        let file = |name: &str, text: String| {
            let path = directory.join(name);
            fs::write(&path, text).map_err(Error::file(&path))
        };
        for unit in 0..self.units {
            file(&format!("src/unit_{unit}.rs"), self.rust_unit(unit))?;
        }
        for program in 0..PROGRAMS {
            file(&format!("src/bin/program_{program}.rs"), self.rust_program(program))?;
        }
        let mut library = String::new();
        for unit in 0..self.units {
            add(&mut library, format_args!("pub mod unit_{unit};\n"));
        }
        file("src/lib.rs", library)?;
        file("Cargo.toml", MANIFEST.to_owned())
    }

    fn rust_unit(&self, unit: u64) -> String {
        let mut text = String::new();
        let mut calls = String::new();
        for (number, function) in self.functions(unit).into_iter().enumerate() {
            text += &function.rust_source(&format!("mix_{number}"));
            add(&mut calls, format_args!("    x = mix_{number}(x);\n"));
        }
        text + &format!("pub fn all(mut x: u32) -> u32 {{\n{calls}    x\n}}\n")
    }

    fn rust_program(&self, program: u64) -> String {
        let mut calls = String::new();
        for unit in 0..self.units {
            add(&mut calls, format_args!("    x = made::unit_{unit}::all(x);\n"));
        }
        format!(
            "fn main() {{\n    let mut x: u32 = {program};\n{calls}    println!(\"{{x}}\");\n}}\n"
        )
    }
}

impl Function {
    fn rust_source(self, name: &str) -> String {
        let Self { factor, summand, shift, times } = self;
        format!(
            "fn {name}(mut x: u32) -> u32 {{\n    for _ in 0..{times} {{\n        \
             x = x.wrapping_mul({factor}).wrapping_add({summand}) ^ (x >> {shift});\n    }}\n    \
             x\n}}\n\n"
        )
    }
}
