/* One line with the progress of a long job. */
#include "ty_base.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define TERMINAL_INTERVAL_S 0.1
#define PLAIN_INTERVAL_S 10.0
#define BAR_WIDTH 24

double ty_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int terminal_columns(FILE *stream)
{
    struct winsize size = {0};
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 80;
    return size.ws_col;
}

/* A line that fits the terminal, because one that wraps cannot be redrawn in place. */
static void show(const ty_progress *progress, const char *line, const char *end)
{
    if (progress->is_terminal)
        fprintf(progress->stream, "\r%.*s\033[K%s", terminal_columns(progress->stream) - 1, line,
                end);
    else
        fprintf(progress->stream, "%s\n", line);
    fflush(progress->stream);
}

void ty_progress_start(ty_progress *progress, FILE *stream, const char *title, uint64_t total,
                       const char *unit)
{
    *progress = (ty_progress){.stream = stream, .title = title, .unit = unit, .total = total};
    progress->is_terminal = stream != NULL && isatty(fileno(stream)) != 0;
    progress->started_s = progress->shown_s = ty_now_s();
}

/* "[######......] " for a known total. */
static void draw_bar(char out[BAR_WIDTH + 4], double share)
{
    out[0] = '[';
    memset(out + 1, '.', BAR_WIDTH);
    memset(out + 1, '#', (size_t)(share * BAR_WIDTH));
    memcpy(out + 1 + BAR_WIDTH, "] ", 3);
}

void ty_progress_update(ty_progress *progress, uint64_t done, const char *note)
{
    double interval = progress->is_terminal ? TERMINAL_INTERVAL_S : PLAIN_INTERVAL_S;
    double now, elapsed, share = 0.0;
    char line[512], of_total[32] = "", left[48] = "", bar[BAR_WIDTH + 4] = "";

    if (progress->stream == NULL)
        return;
    now = ty_now_s();
    if (now - progress->shown_s < interval)
        return;
    progress->shown_s = now;
    elapsed = now - progress->started_s;
    if (progress->total > 0) {
        share = done < progress->total ? (double)done / (double)progress->total : 1.0;
        snprintf(of_total, sizeof of_total, "/%llu", (unsigned long long)progress->total);
        if (progress->is_terminal)
            draw_bar(bar, share);
    }
    if (share > 0.0 && share < 1.0) {
        char time[32];
        ty_format_seconds(elapsed * (1.0 - share) / share, time);
        snprintf(left, sizeof left, ", %s left", time);
    }
    snprintf(line, sizeof line, "%s: %s%llu%s %s%s%s%s", progress->title, bar,
             (unsigned long long)done, of_total, progress->unit, left,
             note != NULL && note[0] != '\0' ? ", " : "", note != NULL ? note : "");
    show(progress, line, "");
}

void ty_progress_finish(ty_progress *progress, const char *note)
{
    char line[512], time[32];

    if (progress->stream == NULL)
        return;
    ty_format_seconds(ty_now_s() - progress->started_s, time);
    snprintf(line, sizeof line, "%s: %s (%s)", progress->title, note, time);
    show(progress, line, "\n");
}
