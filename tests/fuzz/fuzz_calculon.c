/* Importing Calculon models, and the plans and DeepSpeed configurations that are refused. */
#include "import_fuzz.h"
