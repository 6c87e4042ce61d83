# A stand-in for the part of Homebrew's language that Formula/agent-sandbox.rb uses. It is not
# Homebrew: it carries out `install` and `test` of the formula, prints its caveats, and checks nothing
# of what `brew audit` checks.
#
#   ruby tests/install/formula.rb FORMULA PREFIX TESTPATH
require "fileutils"
require "pathname"

HOMEBREW_PREFIX = "/home/linuxbrew/.linuxbrew".freeze

class Formula
  class << self
    attr_reader :dependencies, :body, :said

    %i[desc homepage license head].each do |name|
      define_method(name) { |*words, **_| (@said ||= {})[name] = words.first }
    end

    def url(url, tag:)
      (@said ||= {})[:url] = url
      @version = tag.delete_prefix("v")
    end

    def version = @version

    def depends_on(what)
      name, kind = what.is_a?(Hash) ? what.first : [what, :always]
      (@dependencies ||= []) << "#{name} (#{kind})"
    end

    def test(&body) = @body = body
    def inherited(formula) = @@formula = formula
    def formula = @@formula
  end

  attr_reader :prefix, :testpath

  def initialize(prefix, testpath)
    @prefix = Pathname(prefix)
    @testpath = Pathname(testpath)
    @checks = 0
  end

  # formula.rb of Homebrew: where a keg has these.
  def bin = prefix/"bin"
  def libexec = prefix/"libexec"
  def man = prefix/"share/man"
  def man1 = man/"man1"
  def opt_pkgshare = Pathname(HOMEBREW_PREFIX)/"opt/agent-sandbox/share/agent-sandbox"
  def bash_completion = prefix/"etc/bash_completion.d"
  def zsh_completion = prefix/"share/zsh/site-functions"
  def fish_completion = prefix/"share/fish/vendor_completions.d"
  def version = self.class.version

  def system(*words)
    words = words.map(&:to_s)
    Kernel.system(*words) || raise("failed: #{words.join(" ")}")
  end

  def cd(directory, &body) = Dir.chdir(directory.to_s, &body)

  def shell_output(line)
    text = IO.popen({ "HOME" => testpath.to_s }, ["sh", "-c", line], &:read)
    raise "failed: #{line}" unless $?.success?

    text
  end

  def assert_match(expected, text)
    @checks += 1
    raise "`#{expected}` is not in: #{text}" unless text.include?(expected)
  end

  def assert_path_exists(path)
    @checks += 1
    raise "#{path} is not there" unless File.exist?(path)
  end

  def run_test
    instance_eval(&self.class.body)
    raise "the formula's test checks nothing" if @checks.zero?

    @checks
  end
end

path, prefix, testpath = ARGV
load path
formula = Formula.formula.new(prefix, testpath)
%i[desc homepage url license head].each do |name|
  raise "the formula has no #{name}" unless Formula.formula.said[name]
end
puts "depends on: #{Formula.formula.dependencies.join(", ")}"
formula.install
puts "tested: #{formula.run_test} checks"
puts formula.caveats
