/* Importing hwloc XML. */
#define FORMAT "hwloc"
#include "cluster_import_fuzz.h"
