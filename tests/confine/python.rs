//! Environments and notebooks: uv's cache, kernels of an environment in the project, a notebook server.

use std::path::PathBuf;

use crate::forward::{has_no_network, sockets};
use crate::world::{Output, Run, World, not_checked, wait_for};

/// Where `tests/confine/install` has put uv and Jupyter.
fn tools(what: &str) -> Option<PathBuf> {
    let at = std::env::var_os("AGENT_SANDBOX_TEST_PYTHON").map(PathBuf::from);
    if at.is_none() {
        not_checked(what, "tests/confine/install did not succeed, see above");
    }
    at
}

/// A launch that is shown the tools, which a script has as `$TOOLS`.
fn with<'a>(world: &'a World, tools: &std::path::Path) -> Run<'a> {
    let run = world.jail([]).option("--read", tools);
    run.env("TOOLS", tools)
}

#[track_caller]
fn works(output: &Output) {
    assert_eq!(output.code(), 0, "{output:?}");
}

/// A package as a file, `small-1.0-py3-none-any.whl`.
const WHEEL: &str = r#"
python3 - <<'end'
import zipfile
meta = "small-1.0.dist-info/"
files = {
    "small.py": "print('small', 6 * 7)\n",
    meta + "METADATA": "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
    meta + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
with zipfile.ZipFile("small-1.0-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
    wheel.writestr(meta + "RECORD", "".join(f"{n},,\n" for n in [*files, meta + "RECORD"]))
end
"#;

#[test]
fn uv_makes_environments_and_projects() {
    let Some(tools) = tools("uv") else { return };
    let world = World::new();
    let script = format!(
        "set -e; {WHEEL}
        uv=$TOOLS/bin/uv
        $uv venv -q -p /usr/bin/python3 .venv
        $uv pip install -q --offline -p .venv ./small-1.0-py3-none-any.whl
        .venv/bin/python -m small
        $uv init -q --offline app; cd app; $uv add -q --offline ../small-1.0-py3-none-any.whl
        $uv run -q --offline python -m small"
    );
    let output = with(&world, &tools).run(&["bash", "-c", &script]);
    works(&output);
    assert_eq!(output.stdout, "small 42\nsmall 42\n", "{output:?}");
}

/// uv's cache is the project's own, and there in the next session: what was downloaded once is installed
/// without a network. Neither the user nor another project has it.
#[test]
fn uvs_cache_stays_with_the_project() {
    let Some(tools) = tools("uv's cache") else {
        return;
    };
    let world = World::new();
    let download = format!(
        "set -e; {WHEEL}
        mkdir -p index/small; mv small-1.0-py3-none-any.whl index/small/
        echo '<a href=\"small-1.0-py3-none-any.whl\">small-1.0-py3-none-any.whl</a>' > index/small/index.html
        python3 -u -m http.server -b 127.0.0.1 -d index 0 > served 2>&1 &
        until grep -qo 'http://[^)]*' served; do sleep 0.02; done
        grep -o 'http://[^)]*' served > address
        $TOOLS/bin/uv venv -q -p /usr/bin/python3 first
        $TOOLS/bin/uv pip install -q -p first --index-url $(cat address) small
        first/bin/python -m small; rm -r index"
    );
    let install = "set -e; $TOOLS/bin/uv venv -q -p /usr/bin/python3 second
        $TOOLS/bin/uv pip install -q --offline -p second --index-url $(cat address) small
        second/bin/python -m small";
    let run = |script: &str| with(&world, &tools).run(&["bash", "-c", script]);
    for script in [&download, install] {
        let output = run(script);
        works(&output);
        assert_eq!(output.stdout, "small 42\n", "{output:?}");
    }
    assert!(!world.home(".cache/uv").exists());
    let other = world.outer("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(world.project("address"), other.join("address")).unwrap();
    let output = with(&world, &tools)
        .cwd(&other)
        .run(&["bash", "-c", install]);
    assert_ne!(output.code(), 0, "{output:?}");
    assert!(output.stderr.contains("small was not found"), "{output:?}");
}

/// An environment in the project with a kernel of its own, named `project`.
fn with_kernel(tools: &std::path::Path) -> World {
    let world = World::new();
    let script = r#"
        /usr/bin/python3 -m venv --without-pip .venv
        echo "$TOOLS"/lib/python3*/site-packages > "$(echo .venv/lib/python3*/site-packages)/tools.pth"
        .venv/bin/python -m ipykernel install --sys-prefix --name project
    "#;
    works(&with(&world, tools).run(&["bash", "-ec", script]));
    world
}

/// Runs a script of Python's that finds that kernel.
fn python(world: &World, tools: &std::path::Path, script: &str) -> String {
    let run = with(world, tools).env("JUPYTER_PATH", world.project(".venv/share/jupyter"));
    let output = run.run(&[
        tools.join("bin/python").as_os_str(),
        "-c".as_ref(),
        script.as_ref(),
    ]);
    works(&output);
    output.stdout
}

#[test]
fn a_kernel_of_the_project_works() {
    let Some(tools) = tools("a Jupyter kernel") else {
        return;
    };
    let world = with_kernel(&tools);
    let script = "
import nbformat
from nbclient import NotebookClient
cell = nbformat.v4.new_code_cell('import sys; print(sys.prefix)')
notebook = nbformat.v4.new_notebook(cells=[cell])
NotebookClient(notebook, kernel_name='project').execute()
print(notebook.cells[0].outputs[0].text.strip())
";
    let prefix = world.project(".venv").display().to_string();
    assert_eq!(python(&world, &tools, script), format!("{prefix}\n"));
}

/// A server inside answers on the loopback and finds the project's kernel; the settings and the tokens of the user's own
/// servers are not there.
#[test]
fn a_notebook_server_works() {
    let Some(tools) = tools("a Jupyter server") else {
        return;
    };
    let world = with_kernel(&tools);
    let settings = world.home(".jupyter/jupyter_server_config.json");
    let server = world.home(".local/share/jupyter/runtime/jpserver-1.json");
    for file in [&settings, &server] {
        world.secret(file);
        let output = world.jail([]).run(&["cat".as_ref(), file.as_os_str()]);
        assert_eq!(output.code(), 1, "{output:?}");
    }
    let script = "
import json, os, subprocess, sys, time, urllib.request
from jupyter_core.paths import jupyter_runtime_dir
log = open('server.log', 'w')
server = subprocess.Popen([sys.executable, '-m', 'jupyter_server', '--no-browser', '--port=0',
    '--IdentityProvider.token=word', '--ServerApp.terminals_enabled=False'], stdout=log, stderr=log)
said = f'{jupyter_runtime_dir()}/jpserver-{server.pid}.json'
while not (os.path.exists(said) and os.path.getsize(said)) and server.poll() is None:
    time.sleep(0.05)
if server.poll() is not None:
    sys.exit(open('server.log').read())
def ask(path):
    url = json.load(open(said))['url'] + path
    request = urllib.request.Request(url, headers={'Authorization': 'token word'})
    until = time.monotonic() + 60
    while True: # the file may be there before the server listens
        try:
            return json.load(urllib.request.urlopen(request))
        except OSError as error:
            if not isinstance(getattr(error, 'reason', None), ConnectionRefusedError) or time.monotonic() > until:
                raise
            time.sleep(0.1)
try:
    print('has', *sorted(ask('api/kernelspecs')['kernelspecs']))
except OSError as error:
    sys.exit(f'{error!r}: {open(said).read()}' + open('server.log').read())
finally:
    server.kill()
";
    let said = python(&world, &tools, script);
    assert_eq!(said, "has project python3\n");
}

/// A server inside a network of the jail's own, in which a notebook's cell runs: the user reaches it by its socket, and its token holds.
#[test]
fn a_notebook_server_is_reached_where_its_port_is_forwarded() {
    let Some(tools) = tools("a Jupyter server that is forwarded") else {
        return;
    };
    if has_no_network("a Jupyter server that is forwarded") {
        return;
    }
    let world = with_kernel(&tools);
    let run = with(&world, &tools)
        .env("JUPYTER_PATH", world.project(".venv/share/jupyter"))
        .option("--set", "network.mode=isolated")
        .option("--set", "network.forward=[8899]");
    let script = "$TOOLS/bin/python -m jupyter_server --no-browser --port=8899 --IdentityProvider.token=word > server.log 2>&1 &
        until [ -e over ]; do sleep 0.1; done; kill %1; wait";
    let session = run.start(&["bash", "-c", script]);
    let ask = |more: &[&str], path: &str| {
        let socket = sockets(&world, &session).remove(0).1;
        let socket = socket.to_str().unwrap();
        let words = ["curl", "-sS", "-m", "60", "--unix-socket", socket];
        let url = format!("http://localhost:8899/{path}");
        let output = world.outside().run(&[&words[..], more, &[&url]].concat());
        output.stdout
    };
    let token = ["-H", "Authorization: token word"];
    wait_for("the server", || {
        ask(&token, "api/kernelspecs")
            .contains("project")
            .then_some(())
    })
    .unwrap();
    assert!(ask(&[], "api/kernelspecs").contains("Forbidden"));
    let body = ["-d", r#"{"name": "project"}"#];
    let started = ask(&[&token[..], &body].concat(), "api/kernels");
    assert!(started.contains("execution_state"), "{started}");
    // Events of a kernel come by WebSocket.
    let id = serde_json::from_str::<serde_json::Value>(&started).unwrap()["id"].clone();
    let upgrade = [
        "-i",
        "--http1.1",
        "-m",
        "5",
        "-H",
        "Connection: Upgrade",
        "-H",
        "Upgrade: websocket",
        "-H",
        "Sec-WebSocket-Version: 13",
        "-H",
        "Sec-WebSocket-Key: c29tZXRoaW5nIHNob3J0IQ==",
    ];
    let path = format!("api/kernels/{}/channels", id.as_str().unwrap());
    // The server answers when the kernel has, and curl stays on the line until its time is over.
    wait_for("an upgrade", || {
        let upgraded = ask(&[&token[..], &upgrade].concat(), &path);
        upgraded.starts_with("HTTP/1.1 101 ").then_some(())
    })
    .unwrap();
    std::fs::write(world.project("over"), "").unwrap();
    works(&session.wait());
}
