/* Importing ASTRA-sim networks. */
#define FORMAT "astra-sim"
#include "cluster_import_fuzz.h"
