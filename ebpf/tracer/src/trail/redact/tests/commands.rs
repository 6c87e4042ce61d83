//! What is known of programs, in arguments and in scripts; and what must stay readable.

use super::*;

/// What is left of a script for a shell.
fn script(text: &str) -> String {
    shown(&Redaction::default(), &["bash", "-c", text])[2].clone()
}

#[test]
fn commands_in_scripts_are_read_as_in_arguments() {
    for command in [
        "mysql -pLEAK",
        "mysql -u root -p'LEAK b' db",
        "mysqldump --single-transaction -p\"LEAK\" db",
        "/opt/my/bin/mysql -h h -pLEAK db",
        "sshpass -p LEAK ssh -p 22 h",
        "sshpass -pLEAK ssh h",
        "redis-cli -h h -a LEAK ping",
        "openssl enc -aes-256-cbc -k LEAK",
        "docker login -u me -p LEAK host",
        "docker --debug login -p LEAK",
        "podman login -p LEAK",
        "zip -P LEAK x.zip y",
        "7z a -pLEAK x.7z y",
        "curl -u me:LEAK https://h/",
        "curl -sSu me:LEAK https://h/",
        "curl -fsSL -U 'me:LEAK' https://h/",
        "curl -b 'session=LEAK' https://h/",
        "openssl enc -aes-256-cbc -K LEAK -iv 0",
        "ipmitool -U me -P LEAK power status",
        "lftp -u me,LEAK h",
        "http -a me:LEAK h",
        "sqlplus scott/LEAK@db",
        "sqlplus -s scott/LEAK @script.sql",
        "sqlldr userid=scott/LEAK control=x",
        "wandb login LEAK",
        "wandb login --relogin LEAK",
        "rclone obscure LEAK",
        "aws configure set aws_secret_access_key LEAK",
        "poetry config pypi-token.pypi LEAK",
        "npm config set //registry.example.org/:_authToken LEAK",
        "huggingface-cli login --token LEAK",
        "echo LEAK | sudo -S ls",
        "echo 'LEAK b' | sudo -kS ls /x",
        "sudo -S ls <<< LEAK",
        "printf %s LEAK | docker login --password-stdin",
        "printf '%s\\n' \"LEAK\" | docker login -u me --password-stdin host",
        "echo -n LEAK | base64 | docker login --password-stdin",
        "echo LEAK|gh auth login --with-token",
        "echo me:LEAK | sudo chpasswd",
        "docker login --password-stdin <<EOF\nLEAK\nEOF",
        "cat <<'X' | sudo -S ls\nLEAK",
        "printf 'password:\\n  x' > f; cat > f <<EOF\npassword:\n  LEAK\nEOF",
        "cat > f <<EOF\npassword: |\n  LEAK\n  LEAK\nEOF",
        "TOKEN=$(echo LEAK x) make",
        "export TOKEN=\"$(echo \"LEAK x\" LEAK)\"",
        "TOKEN=`echo LEAK x`",
        "x --token $(echo \"LEAK $(echo LEAK x)\" LEAK) y",
        "TOKEN=<(echo LEAK x)",
        "TOKEN=${X:-LEAK x}",
        "x --pwd=LEAK",
        "x --pw LEAK",
        "X_TOK=LEAK x",
        "x --key LEAK0123456789abc",
        "curl 'https://api/x?key=LEAK&a=1'",
        "curl 'https://api/x?a=1&key=LEAK'",
        "x 'token\\u003dLEAK'",
        "x token%3DLEAK",
        "TOKEN+=LEAK",
        "TOKEN+='LEAK b' x",
        "setenv HF_TOKEN LEAK",
        "setenv HF_TOKEN 'LEAK b'",
        "tmux set-environment TOKEN LEAK",
        "tmux set-environment -g TOKEN LEAK",
        "tmux setenv -t x TOKEN LEAK",
        "jq -n --arg token LEAK '{a: $token}'",
        "keytool -list -storepass LEAK -keypass LEAK",
        "gh secret set X --body LEAK",
        "gh secret set X --body=LEAK",
        "gh secret set X -b 'LEAK b' -R a/b",
    ] {
        for around in [
            "@",
            "cd /x && @",
            "true; @ ; x",
            "true|@",
            "ls\n@\nls",
            "sudo -E env A=b @",
            "if ! @; then x; fi",
            "(@)",
            "x=$(@)",
            "sh -c \"@\"",
            "# @",
        ] {
            // A quote in quotes, and a document in the middle of a line, are other scripts.
            if around.contains('"') && command.contains('"')
                || command.contains('\n') && !around.starts_with('@') && !around.starts_with("cd")
            {
                continue;
            }
            let whole = around.replace('@', command);
            let left = script(&whole);
            assert!(!left.contains("LEAK"), "{whole}\n{left}");
            assert!(left.contains(REDACTED), "{whole}\n{left}");
        }
    }
}

#[test]
fn what_stands_beside_a_secret_stays() {
    for (text, left) in [
        ("mysql -u root -pLEAK db", "mysql -u root -p[redacted] db"),
        (
            "sshpass -p LEAK ssh -p 22 h ls",
            "sshpass -p [redacted] ssh -p 22 h ls",
        ),
        ("sqlplus scott/LEAK@db", "sqlplus scott/[redacted]@db"),
        ("wandb login LEAK; ls", "wandb login [redacted]; ls"),
        (
            "echo LEAK | sudo -S ls /root",
            "echo [redacted] | sudo -S ls /root",
        ),
        (
            "printf '%s\\n' LEAK | docker login --password-stdin h",
            "printf '%s\\n' [redacted] | docker login --password-stdin h",
        ),
        (
            "A=1 TOKEN=$(echo LEAK x) make -j",
            "A=1 TOKEN=[redacted] make -j",
        ),
        (
            "docker login --password-stdin <<EOF\nLEAK\nEOF\nls -l",
            "docker login --password-stdin <<EOF\n[redacted]\nEOF\nls -l",
        ),
        (
            "curl 'https://h/x?key=LEAK&a=1'",
            "curl 'https://h/x?key=[redacted]&a=1'",
        ),
        (
            "ssh h 'mysql -pLEAK db' && ls",
            "ssh h 'mysql -p[redacted] db' && ls",
        ),
        (
            "aws configure set aws_secret_access_key LEAK --profile x",
            "aws configure set aws_secret_access_key [redacted] --profile x",
        ),
    ] {
        assert_eq!(script(text), left);
    }
    assert_eq!(
        built_in(&["curl", "-sSu", "me:pw", "h"]),
        "curl -sSu me:[redacted] h"
    );
    assert_eq!(
        built_in(&["sqlplus", "scott/tiger@db"]),
        "sqlplus scott/[redacted]@db"
    );
    assert_eq!(
        built_in(&["wandb", "login", "abc"]),
        "wandb login [redacted]"
    );
    assert_eq!(built_in(&["x", "--pwd", "abc"]), "x --pwd [redacted]");
    assert_eq!(
        built_in(&["sshpass", "-p", "pw", "ssh", "-p", "22", "h"]),
        "sshpass -p [redacted] ssh -p 22 h"
    );
}

#[test]
fn some_words_count_as_the_first_alone() {
    for (text, left) in [
        ("set -gx API_KEY LEAK", "set -gx API_KEY [redacted]"),
        ("ls; set -x TOKEN LEAK", "ls; set -x TOKEN [redacted]"),
        ("exp scott/LEAK file=x", "exp scott/[redacted] file=x"),
        (
            "/opt/ora/bin/rman scott/LEAK",
            "/opt/ora/bin/rman scott/[redacted]",
        ),
    ] {
        assert_eq!(script(text), left);
    }
    assert_eq!(
        built_in(&["imp", "scott/tiger@db"]),
        "imp scott/[redacted]@db"
    );
}

#[test]
fn harmless_commands_stay_readable() {
    for text in [
        "git push -u origin main",
        "git push -u origin HEAD:main",
        "git config --global user.name ada && git config credential.helper store",
        "git log --author=ada -p -- src/login.rs",
        "git commit -m 'login: read the password from a file'",
        "tar -xpf a.tar -C /x && tar -p -cf b.tar y",
        "mkdir -p a/b/c; cp -p a b; cp -a login x",
        "ssh -p 22 h; ssh -p 2222 me@login; ssh login -p 22; scp -P 22 a login:b",
        "docker run -p 80:80 -u 1000:1000 --rm -v /a:/b image",
        "ps -p 17 -o pid,comm",
        "curl --cert c.pem --key-file path/key.pem -o out https://h/x",
        "curl --key client.pem https://h/",
        "curl -b cookies.txt -c cookies.txt https://h/",
        "jq '.key' x.json | sort --key=2,2n -k 1",
        "sort --key 2 x",
        "python -k x; pytest -k 'token and not slow' -p no:cacheprovider",
        "python train.py --tokenizer gpt2 --max-tokens=4096 --n_tok=512 --key-dim 64",
        "apptainer exec --pwd /work --bind /a:/b image.sif make",
        "PWD=/tmp make; x --pwd=$HOME/y",
        "aws s3api get-object --bucket b --key runs/2024/result-00017.json out",
        "echo hello world | tee out.txt; echo y | sudo tee /etc/x",
        "printf '%s\\n' a b c | sort -u",
        "echo \"$(date) done\" >> log.txt 2>&1",
        "cat <<EOF > run.sh\n#!/bin/bash\nsrun -p short -n 4 ./a.out\nEOF",
        "sbatch -p short -A project --wrap 'python x.py -p 4 -a 3'",
        "srun -p gpu -u ./a.out && scontrol show job 17",
        "zip -r x.zip y; unzip -p x.zip a; 7z x y.7z -ooutput",
        "mysql -P 3306 -h h -u root db -e 'select 1'",
        "psql -p 5432 -U ada -h h db",
        "openssl x509 -in a.pem -noout -text",
        "openssl req -keyout k -key a.pem; openssl req -keyout k",
        "cp -r exp data/in.csv out/x",
        "ls imp a/b; python rman.py a/b; python -m exp conf/x",
        "ssh -o PasswordAuthentication=no h",
        "set -euo pipefail; set -- a b; set -gx EDITOR vim",
        "setenv PATH /a:/b; tmux set-environment DISPLAY :0",
        "jq --arg name ada --arg n 1 . x.json",
        "gh pr create --body text -b x",
        "rsync -avP a/ login:b/",
        "echo su kinit passwd | wc -w",
        "find . -name '*.key' -newer login -print",
        "for k in a b; do grep -p \"$k\" x; done",
        "python3 -c \"d = {'key': 1, 'sort_key': 'b'}; print(d['key'])\"",
        "make -k -p | less; ls -k",
        "kubectl get pods -o json | jq '.items[].metadata.name'",
        "imp() { import -p x; }; exp=a/b; export PATH=/a/b:$PATH",
        "test -p pipe || mkfifo pipe",
        "vault kv get -field=x path/to/thing",
        "sed -i 's/key=.*/key=2/' x.ini",
        "monkey=1 key=value ./x --keys=a,b",
    ] {
        assert_eq!(script(text), text);
        // The same as words, as far as a blank tells them apart.
        let words: Vec<&str> = text.split(' ').collect();
        if !text.contains(['\'', '"', ';', '|', '&', '\n']) {
            assert_eq!(built_in(&words), text);
        }
    }
}

#[test]
fn signed_urls_as_names_of_files_lose_their_signatures() {
    let path = |text: &str| String::from_utf8(Redaction::path(text.as_bytes())).unwrap();
    for (name, left) in [
        (
            "/d/f.gz?X-Amz-Date=1&X-Amz-Signature=abc&X-Amz-Security-Token=d%2Fe",
            "/d/f.gz?X-Amz-Date=1&X-Amz-Signature=[redacted]&X-Amz-Security-Token=[redacted]",
        ),
        (
            "/d/blob?sv=1&sig=a%3D&se=2",
            "/d/blob?sv=1&sig=[redacted]&se=2",
        ),
        ("/d/x?token=abc/y", "/d/x?token=[redacted]/y"),
        ("/d/x@a=1&key=abc", "/d/x@a=1&key=[redacted]"),
        ("a=1&access_token=abc", "a=1&access_token=[redacted]"),
        ("/d/token=abc/run@node1/x?y", "/d/token=abc/run@node1/x?y"),
        ("/proc/self/fd/3", "/proc/self/fd/3"),
        ("", ""),
    ] {
        assert_eq!(path(name), left);
        assert_eq!(path(left), left);
    }
}

#[test]
fn names_of_sockets_are_paths() {
    // Put together here, so that no file of ours holds what looks like a key.
    let key = format!("{}{}", "ghp_", "A1b2C3d4E5f6G7h8I9j0");
    let unix = u16::try_from(libc::AF_UNIX).unwrap();
    for (before, behind) in [("\0", ""), ("/tmp/", ".sock\0"), ("/tmp/x?token=abc&", "")] {
        let mut bytes = unix.to_ne_bytes().to_vec();
        bytes.extend(format!("{before}{key}{behind}").bytes());
        let left = Redaction::address(unix, &bytes).into_owned();
        let text = String::from_utf8_lossy(&left).into_owned();
        assert!(text.contains(REDACTED) && !text.contains("C3d4"), "{text}");
        assert!(!text.contains("abc"), "{text}");
        assert_eq!(left[..2], bytes[..2]);
    }
    let inet = u16::try_from(libc::AF_INET).unwrap();
    assert_eq!(*Redaction::address(inet, &[2, 0, 1]), [2, 0, 1]);
    assert_eq!(*Redaction::address(unix, &[1]), [1]);
}
