# Two ranks of a step: one has Slurm's daemon of the step end, after all of the step's group was stopped.
import fcntl, os, signal, time

rank = os.environ["SLURM_PROCID"]


def wait_for_the_other():
    # All ranks of a node are in one group: one that is stopped while it starts would never be there.
    while not os.path.exists("alive.1"):
        time.sleep(0.05)


def end_the_daemon():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    pmi = int(os.environ["PMI_FD"])
    fcntl.fcntl(pmi, fcntl.F_SETFL, os.O_NONBLOCK)
    try:
        os.write(pmi, b"99999\ncmd=;;=\n" + b"\xa5" * 4000)
    except OSError:
        pass
    os.close(pmi)


if os.fork() == 0:
    # A child in the old group, whose parent is in a new one: the group is no orphan.
    if os.fork() == 0:
        while True:
            time.sleep(100)
    os.setpgid(0, 0)
    if rank == "0":
        wait_for_the_other()
    for count in range(100):
        with open("next." + rank, "w") as file:
            file.write(str(count))
        os.rename("next." + rank, "alive." + rank)
        if rank == "0" and count == 5:
            end_the_daemon()
        time.sleep(0.2)
    os._exit(0)
if rank == "0":
    wait_for_the_other()
    time.sleep(0.5)
    os.kill(0, signal.SIGSTOP)
time.sleep(30)
