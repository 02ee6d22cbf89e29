/* Simulator files that do not describe devices and links: refused with a reason. */
#include "importer.h"

#include <string.h>

typedef struct foreign {
    const char *marks[2]; /* the file has both */
    const char *what;
} foreign;

static const foreign foreigners[] = {
    {{"npus_count:", "topology:"},
     "an ASTRA-sim network, expected a cluster; \"host:4 gpu:8 @DEVICE LINK NETWORK\" says the "
     "same"},
    {{"\"scheduling-policy\"", "\"all-reduce-implementation\""},
     "an ASTRA-sim system file (collectives and scheduling), expected a cluster"},
    {{"\"matrix\"", "\"networks\""},
     "a Calculon system (one device and rates of nested networks, without counts), expected a "
     "cluster; \"leaf:4 host:8 gpu:8 @DEVICE LINK NETWORK\" says the same with counts"},
    {{"Downlink_speed_Gbps", "Radix_Down"},
     "an htsim topology (.topo: radix and speed of tiers), expected a cluster; \"pod:2 leaf:2 "
     "host:2 gpu:1 @DEVICE LINK NETWORK oversub:R\" says the same"},
};

/* Texts of probes end in a NUL (importer.c, ty_file_read). */
static bool contains(const char *text, size_t length, const char *mark)
{
    size_t size = strlen(mark);

    for (const char *at = text, *end = text + length;
         (at = memchr(at, mark[0], (size_t)(end - at))) != NULL; at++)
        if ((size_t)(end - at) >= size && memcmp(at, mark, size) == 0)
            return true;
    return false;
}

static const foreign *find_foreign(const char *text, size_t length)
{
    size_t start = length < 4096 ? length : 4096;

    for (size_t i = 0; i < sizeof foreigners / sizeof foreigners[0]; i++)
        if (contains(text, start, foreigners[i].marks[0]) &&
            contains(text, start, foreigners[i].marks[1]))
            return &foreigners[i];
    return NULL;
}

static bool probe_foreign(const char *text, size_t length)
{
    return find_foreign(text, length) != NULL;
}

static ty_status refuse_foreign(importer *im, ty_error *error)
{
    const foreign *f = find_foreign(im->text, im->length);

    return ty_fail(error, TY_EUNSUPPORTED, "%.160s: found %s", im->name,
                   f != NULL ? f->what : "no file of another simulator, expected one");
}

const import_format import_foreign = {"simulator",
                                      "files of simulators that are no clusters "
                                      "(refused)",
                                      probe_foreign, refuse_foreign};
