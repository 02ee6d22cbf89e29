/* Importing ibnetdiscover. */
#define FORMAT "ibnetdiscover"
#include "cluster_import_fuzz.h"
