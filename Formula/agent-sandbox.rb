# Homebrew formula, for a tap on clusters where people install with Linuxbrew. It builds from source.
class AgentSandbox < Formula
  desc "Run AI coding agents on HPC login nodes without handing them your keys"
  homepage "https://github.com/agent-sandbox/agent-sandbox"
  url "https://github.com/agent-sandbox/agent-sandbox.git", tag: "v0.1.0"
  license "MIT"
  head "https://github.com/agent-sandbox/agent-sandbox.git", branch: "main"

  depends_on "rust" => :build
  depends_on :linux

  # Not bubblewrap: its jails are made only by a bwrap that belongs to root, in /usr/bin or /usr/local/bin.
  # Homebrew's would belong to whoever installed it.

  def install
    # The site's policy is outside of Homebrew's prefix, since it must belong to root.
    system "make", "install", "PREFIX=#{prefix}", "SITE_DIR=/etc/agent-sandbox",
           "mandir=#{man}", "bashdir=#{bash_completion}", "zshdir=#{zsh_completion}",
           "fishdir=#{fish_completion}"
  end

  def caveats
    <<~EOS
      A jail is made by bubblewrap 0.4.0 or newer that root has installed in /usr/bin or
      /usr/local/bin, or by Landlock (Linux 5.19 or newer). Whether one works here:
        agent-sandbox doctor

      A site's policy stands in /etc/agent-sandbox, belongs to root, and is not part of
      this formula. Examples are in
        #{opt_pkgshare}/profiles/site

      The tracer, agent-sandbox-tracer(8), is a service of root's. Do not start it from here:
      root must not run what somebody else can change. Install it as root, with make.

      Programs below #{HOMEBREW_PREFIX} belong to whoever installed them: use a prefix
      that the users of a cluster cannot write if the policy is to hold for all of them.
    EOS
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/agent-sandbox --version")
    project = testpath/"project"
    project.mkpath
    (testpath/".ssh").mkpath
    (testpath/".ssh/id_rsa").write "secret"
    cd project do
      # The plan needs no jail, which Homebrew's own sandbox may forbid.
      assert_match "mode", shell_output("#{bin}/agent-sandbox policy")
      answer = shell_output("#{bin}/agent-sandbox explain #{testpath}/.ssh/id_rsa")
      assert_match "hidden", answer
    end
    assert_path_exists man1/"agent-sandbox.1"
    %w[chaperon filter shim tracer trail].each do |name|
      assert_path_exists libexec/"agent-sandbox/agent-sandbox-#{name}"
    end
  end
end
