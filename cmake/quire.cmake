# Compiler settings and the few helpers that every folder uses.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(QUIRE_CCACHE ccache)
if(QUIRE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${QUIRE_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)

# Flags of our own code. No contraction of a*b+c: results must not depend on the optimiser.
add_library(quire_flags INTERFACE)
target_include_directories(quire_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(quire_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion
                                             -Wno-sign-conversion -Werror -ffp-contract=off)
if(QUIRE_SANITIZER STREQUAL "address")
  # Without the checks that look at every access once more: they double the time to build.
  target_compile_options(quire_flags INTERFACE -fsanitize=address,undefined
                                               -fno-sanitize=null,alignment,object-size
                                               -fno-sanitize=pointer-overflow,vptr
                                               -fno-sanitize-recover=all -fno-omit-frame-pointer
                                               -Wno-maybe-uninitialized) # False alarms, says GCC.
  target_link_options(quire_flags INTERFACE -fsanitize=address,undefined)
elseif(QUIRE_SANITIZER STREQUAL "thread")
  target_compile_options(quire_flags INTERFACE -fsanitize=thread)
  target_link_options(quire_flags INTERFACE -fsanitize=thread)
  # Debian's Abseil is not instrumented: base/tsan_absl.cc stands between it and us.
  foreach(symbol
          _ZN4absl7debian35Mutex4LockEv
          _ZN4absl7debian35Mutex6UnlockEv
          _ZN4absl7debian35MutexD1Ev
          _ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE
          _ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE
          _ZN4absl7debian312Notification6NotifyEv
          _ZNK4absl7debian312Notification19WaitForNotificationEv
          _ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE)
    # Taken from the archive even if only one of Abseil's own libraries asks for it.
    target_link_options(quire_flags INTERFACE LINKER:--wrap=${symbol}
                                              LINKER:--undefined=__wrap_${symbol})
  endforeach()
elseif(QUIRE_SANITIZER)
  message(FATAL_ERROR "QUIRE_SANITIZER must be empty, address or thread, not ${QUIRE_SANITIZER}")
endif()

# quire_library(NAME scheduler SOURCES a.cc b.cc DEPS quire::block_manager absl::status)
# makes the target quire_scheduler with the alias quire::scheduler.
function(quire_library)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(quire_${ARG_NAME} STATIC ${ARG_SOURCES})
    target_link_libraries(quire_${ARG_NAME} PUBLIC quire_flags ${ARG_DEPS})
  else()
    add_library(quire_${ARG_NAME} INTERFACE)
    target_link_libraries(quire_${ARG_NAME} INTERFACE quire_flags ${ARG_DEPS})
  endif()
  add_library(quire::${ARG_NAME} ALIAS quire_${ARG_NAME})
endfunction()

# quire_test(NAME block_pool_test LABEL unit SOURCES block_pool_test.cc DEPS quire::block_manager)
# registers every TEST singly in ctest as <folder>/<name>.<test>, with the label. TIMEOUT in seconds
# (default 120). PROCESSORS (default 1): how many CPUs each keeps busy, so that `ctest -j` does not
# let threads that wait for each other share one. All tests of a folder: target <folder>_tests.
function(quire_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT;PROCESSORS" "LABEL;SOURCES;DEPS" ${ARGN})
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR}/tests
             OUTPUT_VARIABLE folder)
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE quire_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_options(${ARG_NAME} PRIVATE ${QUIRE_TEST_OPTIONS})
  target_precompile_headers(${ARG_NAME} REUSE_FROM quire_test_headers)
  string(REPLACE "/" "_" group "${folder}")
  if(NOT TARGET ${group}_tests)
    add_custom_target(${group}_tests)
  endif()
  add_dependencies(${group}_tests ${ARG_NAME})
  gtest_discover_tests(
    ${ARG_NAME}
    TEST_PREFIX "${folder}/"
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_PROCESSORS})
endfunction()
