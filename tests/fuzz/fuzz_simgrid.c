/* Importing SimGrid platform XML. */
#define FORMAT "simgrid"
#include "cluster_import_fuzz.h"
