/* Files that look like workloads but are none, each with the reason and what to do. */
#include "import.h"

#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

static bool probe_archive(ty_import_source *source)
{
    return source->length > 262 && memcmp(source->bytes + 257, "ustar", 5) == 0;
}

static ty_status refuse_archive(ty_import_source *source, ty_workload **out)
{
    (void)out;
    return ty_fail(
        source->error, TY_EPARSE,
        "%s: found a tar archive, expected one file; unpack it and import what is inside",
        source->path);
}

/* Only reads the beginning, so it also identifies truncated traces. */
enum { BEGINNING = 4096 };

/* @param text terminated by a NUL */
static bool begins_with_member(const char *text, size_t length, const char *const *members,
                               size_t count)
{
    size_t window;

    ty_skip_mark(&text, &length);
    window = length < BEGINNING ? length : BEGINNING;
    if (length == 0 || text[strspn(text, " \t\r\n")] != '{')
        return false;
    for (size_t i = 0; i < count; i++)
        for (size_t at = 0; at + strlen(members[i]) <= window; at++)
            if (memcmp(text + at, members[i], strlen(members[i])) == 0)
                return true;
    return false;
}

static bool begins_as_trace(const char *text, size_t length)
{
    static const char *const members[] = {"\"traceEvents\"", "\"schemaVersion\""};
    return begins_with_member(text, length, members, 2);
}

bool ty_is_profiler_trace(const char *path)
{
    char text[BEGINNING + 1] = "";
    struct stat about;
    gzFile file; /* a pipe would lose the bytes read */
    int length;

    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode) || (file = gzopen(path, "rb")) == NULL)
        return false;
    length = gzread(file, text, BEGINNING);
    (void)gzclose(file);
    return length > 0 && begins_as_trace(text, (size_t)length);
}

static bool probe_profiler_trace(ty_import_source *source)
{
    return begins_as_trace(source->bytes, source->length);
}

static ty_status refuse_profiler_trace(ty_import_source *source, ty_workload **out)
{
    (void)out;
    return ty_fail(
        source->error, TY_EPARSE,
        "%s: found a trace of PyTorch's profiler, which has times but no network: it can "
        "be imported as a profile",
        source->path);
}

static bool probe_observer_trace(ty_import_source *source)
{
    const ty_json *root;
    static const char *const members[] = {"\"start_ts\""};

    if (!begins_with_member(source->bytes, source->length, members, 1))
        return false;
    root = ty_import_json(source);
    return root == NULL || (ty_json_is_object(root) && ty_json_has(root, "nodes"));
}

static ty_status refuse_observer_trace(ty_import_source *source, ty_workload **out)
{
    (void)out;
    return ty_fail(source->error, TY_EPARSE,
                   "%s: found an execution trace of PyTorch's ExecutionTraceObserver, which has no "
                   "times; link it with a profiler trace (chakra_trace_link, chakra_converter) and "
                   "import the Chakra trace",
                   source->path);
}

/* Text files of related tools, identified by a text near their beginning. */
static const struct {
    const char *mark, *what;
} texts[] = {
    {"model_parallel_NPU_group",
     "a SimAI or ASTRA-sim workload, which has what each layer sends once "
     "it is split but not its shape; expected the model it was made of "
     "(config.json, Megatron-LM arguments)"},
    {"comm_type,comm_group", "a SimAI log of collectives, expected a network"},
    {"\nallreduce,:", "SimAI's bandwidths of collectives, expected a network"},
    {"samples_per_sec", "a table of measured speeds, expected a network"},
    {"throughput_samples_s", "a table of measured speeds, expected a network"},
};
enum { TEXT_COUNT = sizeof texts / sizeof texts[0] };

static size_t find_text(const ty_import_source *source)
{
    char window[1024];
    size_t length = source->length < sizeof window ? source->length : sizeof window - 1, i = 0;

    memcpy(window, source->bytes, length);
    window[length] = '\0'; /* ignores the text after a NUL */
    if (window[0] == '{')
        return TEXT_COUNT; /* JSON may contain any of these texts */
    while (i < TEXT_COUNT && strstr(window, texts[i].mark) == NULL)
        i++;
    return i;
}

static bool probe_text(ty_import_source *source)
{
    return find_text(source) < TEXT_COUNT;
}

static ty_status refuse_text(ty_import_source *source, ty_workload **out)
{
    (void)out;
    return ty_fail(source->error, TY_EPARSE, "%s: found %s", source->path,
                   texts[find_text(source)].what);
}

const ty_import_format ty_import_archive = {"tar archive", probe_archive, refuse_archive, true};
const ty_import_format ty_import_profiler_trace = {"PyTorch profiler trace", probe_profiler_trace,
                                                   refuse_profiler_trace, true};
const ty_import_format ty_import_observer_trace = {"PyTorch execution trace", probe_observer_trace,
                                                   refuse_observer_trace, true};
const ty_import_format ty_import_foreign_text = {"text of another program", probe_text, refuse_text,
                                                 true};
