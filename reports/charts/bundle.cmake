# cmake -DNPM=... -DSOURCE=... -DWORK=... -DSCRIPT=... -DNOTICES=... -P bundle.cmake
# Bundles the charts of the report: the packages of package-lock.json into one script, and their
# licences into one text. Where that cannot be done (no node, no registry) both are empty files, the
# build says so and goes on: reports then carry tables and inline SVG only.
function(do_without why)
    message("charts: ${why}; reports of this build carry tables and inline SVG only")
    file(WRITE ${SCRIPT} "")
    file(WRITE ${NOTICES} "")
endfunction()

if(NOT NPM)
    do_without("npm was not found, or TY_CHARTS is OFF")
    return()
endif()
file(MAKE_DIRECTORY ${WORK})
file(COPY ${SOURCE}/package.json ${SOURCE}/package-lock.json ${SOURCE}/charts.js DESTINATION ${WORK})
execute_process(COMMAND ${NPM} ci --ignore-scripts --no-audit --no-fund --no-update-notifier
        --fetch-retries=1 --fetch-timeout=30000
    WORKING_DIRECTORY ${WORK} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT 240)
if(failed)
    string(REGEX MATCH "npm err[^\r\n]*" said "${said}")
    do_without("'npm ci' failed (${failed} ${said}); remove ${SCRIPT} to try again")
    return()
endif()
execute_process(COMMAND ${NPM} exec --offline -- esbuild charts.js --bundle --minify --format=iife
        --target=es2020 --legal-comments=none --log-level=error --outfile=${SCRIPT}
    WORKING_DIRECTORY ${WORK} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT 120)
if(failed)
    string(STRIP "${said}" said)
    do_without("esbuild failed (${failed}: ${said})")
    return()
endif()
# A closing tag inside would end the script of the page it is embedded in.
file(READ ${SCRIPT} script)
string(FIND "${script}" "</script" closing)
if(NOT closing EQUAL -1)
    do_without("the bundle holds a closing script tag")
    return()
endif()

set(notices "")
foreach(package echarts zrender tslib)
    file(GLOB texts ${WORK}/node_modules/${package}/NOTICE ${WORK}/node_modules/${package}/LICENSE
        ${WORK}/node_modules/${package}/LICENSE.txt)
    file(READ ${WORK}/node_modules/${package}/package.json about)
    string(JSON version GET "${about}" version)
    string(JSON license GET "${about}" license)
    string(APPEND notices "==== ${package} ${version} (${license})\n")
    foreach(text ${texts})
        file(READ ${text} content)
        string(APPEND notices "${content}\n")
    endforeach()
endforeach()
file(WRITE ${NOTICES} "${notices}")
string(LENGTH "${script}" length)
message("charts: bundled, ${length} bytes")
