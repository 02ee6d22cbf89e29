/* trainyard, the program. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A closed standard stream must not become the number of another file: uses of it fail instead. */
static void streams_reserve(void)
{
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        if (fcntl(file, F_GETFD) == -1 && errno == EBADF)
            (void)open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int count, char **words)
{
    exit_code code;

    setlocale(LC_ALL, "C");
    streams_reserve();
    code = command_run(count > 0 ? count - 1 : 0, words + 1);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == EXIT_DONE) {
        ty_error error = {0};
        ty_fail(&error, TY_EIO, "standard output: %s", strerror(errno != 0 ? errno : EIO));
        code = report_failure(&error);
    }
    return code;
}
