/* A private network for local runs. Open MPI's launcher listens on every address, even if its
 * interfaces are set. In a network namespace with only a loopback, no one else can connect. */
#include "worker.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static bool write_line(const char *path, const char *line)
{
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    bool is_good;

    if (file < 0)
        return false;
    is_good = write(file, line, strlen(line)) == (ssize_t)strlen(line);
    close(file);
    return is_good;
}

/* Maps this user to itself in the new user namespace. */
static bool map_user(uid_t user, gid_t group)
{
    char line[64];

    (void)write_line("/proc/self/setgroups", "deny"); /* missing in older kernels */
    snprintf(line, sizeof line, "%u %u 1", (unsigned)user, (unsigned)user);
    if (!write_line("/proc/self/uid_map", line))
        return false;
    snprintf(line, sizeof line, "%u %u 1", (unsigned)group, (unsigned)group);
    return write_line("/proc/self/gid_map", line);
}

static bool raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    const int file = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_good;

    if (file < 0)
        return false;
    is_good = ioctl(file, SIOCGIFFLAGS, &request) == 0;
    request.ifr_flags |= IFF_UP;
    is_good = is_good && ioctl(file, SIOCSIFFLAGS, &request) == 0;
    close(file);
    return is_good;
}

/* Root enters directly, others in a user namespace, if the system allows it. */
static bool enter(void)
{
    const uid_t user = geteuid();
    const gid_t group = getegid();

    if (syscall(SYS_unshare, CLONE_NEWNET) == 0)
        return raise_loopback();
    return syscall(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNET) == 0 && map_user(user, group) &&
           raise_loopback();
}

bool ty_private_network_is_wanted(void)
{
    const char *asked = getenv("TRAINYARD_NETWORK");

    return asked == NULL || strcmp(asked, "host") != 0;
}

void ty_private_network_enter(void)
{
    int outcome = 0;
    pid_t probe;

    if (!ty_private_network_is_wanted())
        return;
    /* A partial entry cannot be undone, so another process tries first. */
    probe = fork();
    if (probe == 0)
        _exit(enter() ? 0 : 1);
    if (probe > 0 && waitpid(probe, &outcome, 0) == probe && WIFEXITED(outcome) &&
        WEXITSTATUS(outcome) == 0)
        (void)enter();
}
