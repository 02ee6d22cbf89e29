/* Names and versions of the host and the libraries. */
#include "machine.h"

#include <dnnl.h>
#include <mpi.h>

#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* The first line of a file that starts with `key`, without the key and the newline. */
static bool line_of(const char *path, const char *key, char *out, size_t size)
{
    FILE *file = fopen(path, "r");
    char line[512];
    bool is_found = false;

    if (file == NULL)
        return false;
    while (!is_found && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            const char *value = line + strlen(key);
            value += strspn(value, "\t :");
            snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
            is_found = true;
        }
    }
    fclose(file);
    return is_found;
}

ty_status ty_machine_name(char **out, ty_error *error)
{
    char host[256] = "unknown host", processor[256] = "unknown processor";
    ty_text text = {0};

    if (gethostname(host, sizeof host) != 0)
        snprintf(host, sizeof host, "unknown host");
    host[sizeof host - 1] = '\0';
    line_of("/proc/cpuinfo", "model name", processor, sizeof processor);
    ty_text_addf(&text, "%s, %s", host, processor);
    return ty_text_take(&text, out, error);
}

ty_status ty_machine_versions(const ty_transport *transport, char **out, ty_error *error)
{
    const dnnl_version_t *dnnl = dnnl_version();
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "MPI";
    int length = 0;
    ty_text text = {0};

    MPI_Get_library_version(mpi, &length);
    ty_text_addf(&text, "oneDNN %d.%d.%d, %.*s%s", dnnl->major, dnnl->minor, dnnl->patch,
                 (int)strcspn(mpi, ",\n"), mpi, transport->shares_memory ? ", shared memory" : "");
    return ty_text_take(&text, out, error);
}

ty_status ty_machine_date(char **out, ty_error *error)
{
    time_t now = time(NULL);
    struct tm parts;
    char date[32];

    gmtime_r(&now, &parts);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &parts);
    *out = ty_strdup(date);
    return ty_check_memory(*out != NULL, error);
}

uint32_t ty_machine_cores(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    return cores > 0 ? (uint32_t)cores : 1;
}

uint64_t ty_machine_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

uint64_t ty_machine_peak_memory_bytes(void)
{
    struct rusage use;

    return getrusage(RUSAGE_SELF, &use) == 0 ? (uint64_t)use.ru_maxrss * 1024 : 0;
}

ty_boot_id ty_machine_boot(void)
{
    ty_boot_id boot = {""};

    if (!line_of("/proc/sys/kernel/random/boot_id", "", boot.text, sizeof boot.text))
        gethostname(boot.text, sizeof boot.text - 1);
    return boot;
}
