/* CPU use of other programs: /proc/stat, see proc(5). */
#include "busy.h"
#include "ty_base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHORTEST_S 0.05

bool ty_cpu_clock_read(ty_cpu_clock *out)
{
    enum { USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL, KIND_COUNT };
    const double ticks_per_s = (double)sysconf(_SC_CLK_TCK);
    double ticks[KIND_COUNT] = {0};
    char line[512] = "", *at = line + strlen("cpu"), *end;
    FILE *file = fopen("/proc/stat", "re");
    int count = 0;

    if (file == NULL)
        return false;
    if (fgets(line, sizeof line, file) != NULL && strncmp(line, "cpu ", strlen("cpu ")) == 0)
        for (; count < KIND_COUNT; count++, at = end) {
            ticks[count] = strtod(at, &end);
            if (end == at)
                break;
        }
    fclose(file);
    if (count < SOFTIRQ || !(ticks_per_s > 0))
        return false;
    *out = (ty_cpu_clock){.now_s = ty_now_s(),
                          .busy_s = (ticks[USER] + ticks[NICE] + ticks[SYSTEM] + ticks[IRQ] +
                                     ticks[SOFTIRQ] + ticks[STEAL]) /
                                    ticks_per_s,
                          .steal_s = ticks[STEAL] / ticks_per_s};
    return true;
}

double ty_others_share(const ty_cpu_clock *from, const ty_cpu_clock *to, double own_cpu_s)
{
    const double span_s = to->now_s - from->now_s;
    const double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    double share;

    if (!(span_s >= SHORTEST_S) || !(cores > 0))
        return 0;
    share = (to->busy_s - from->busy_s - own_cpu_s) / (span_s * cores);
    return share < 0 ? 0 : (share > 1 ? 1 : share);
}
