/* Importing CSV of hosts. */
#define FORMAT "csv"
#include "cluster_import_fuzz.h"
