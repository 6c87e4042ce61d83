//! temporary
mod machine;
#[test]
fn try_it() {
    let fetched = machine::fetched().expect("kernels");
    assert!(machine::readable(&fetched));
    let workshop = machine::Workshop::new(fetched);
    std::thread::scope(|s| {
        for k in ["6.1"] {
            let w = &workshop;
            s.spawn(move || {
                let t = w.boot(k, k, "full", "");
                std::fs::write(format!("/work/scratch/t7/transcript.{k}"), t.all()).unwrap();
                eprintln!("{k} {:?}", t.took);
            });
        }
    });
}
