# What docs/gce.md sets up by hand: accounts and their rights, network, registry, bucket, disks with weights, and the
# template that GPU machines are created from. EC1's own machine is yours: it goes into this network, with the account
# that `ec1_account` names.

terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.50, < 8"
    }
  }
}

provider "google" {
  project = var.project
  region  = var.region
}

resource "google_project_service" "used" {
  for_each           = toset(["artifactregistry.googleapis.com", "compute.googleapis.com", "iam.googleapis.com"])
  service            = each.value
  disable_on_destroy = false
}

# Accounts: EC1 starts and stops machines, a machine may read its own image and nothing else.

resource "google_service_account" "ec1" {
  account_id   = "ec1-nights"
  display_name = "EC1: runs the nights"
}

resource "google_service_account" "gpu" {
  account_id   = "ec1-gpu"
  display_name = "EC1: the GPU machine"
}

resource "google_project_iam_member" "ec1_starts_machines" {
  project = var.project
  role    = "roles/compute.instanceAdmin.v1"
  member  = google_service_account.ec1.member
}

resource "google_service_account_iam_member" "ec1_gives_machines_their_account" {
  service_account_id = google_service_account.gpu.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.ec1.member
}

# The image.

resource "google_artifact_registry_repository" "ec1" {
  repository_id = "ec1"
  location      = var.region
  format        = "DOCKER"
  depends_on    = [google_project_service.used]
}

resource "google_artifact_registry_repository_iam_member" "gpu_reads_its_image" {
  repository = google_artifact_registry_repository.ec1.name
  location   = var.region
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.gpu.member
}

# The store. A document or tuple that is removed on request is gone from it for good after `soft_delete_days`.

resource "google_storage_bucket" "store" {
  name                        = var.bucket
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false

  soft_delete_policy {
    retention_duration_seconds = var.soft_delete_days * 86400
  }
}

resource "google_storage_bucket_iam_member" "ec1_keeps_its_files" {
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectUser"
  member = google_service_account.ec1.member
}

# A network of its own, in which nothing may come in but what stands here. It has subnets in all regions, so that one
# template does for zones of several.

resource "google_compute_network" "ec1" {
  name                    = "ec1"
  auto_create_subnetworks = true
  depends_on              = [google_project_service.used]
}

resource "google_compute_firewall" "ec1_to_gpu" {
  name                    = "ec1-to-gpu"
  network                 = google_compute_network.ec1.name
  source_service_accounts = [google_service_account.ec1.email]
  target_service_accounts = [google_service_account.gpu.email]

  allow {
    protocol = "tcp"
    ports    = ["22", tostring(var.engine_port)]
  }
}

resource "google_compute_firewall" "operators_to_ec1" {
  name    = "ec1-operators"
  network = google_compute_network.ec1.name
  # Google's own, through which `gcloud compute ssh --tunnel-through-iap` and `start-iap-tunnel` come.
  source_ranges           = ["35.235.240.0/20"]
  target_service_accounts = [google_service_account.ec1.email]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}

# The GPU machine. EC1 creates it, sets its lifetime at each start, and stops it.

resource "google_compute_disk" "weights" {
  for_each   = toset(var.zones)
  name       = "ec1-weights"
  zone       = each.value
  type       = "pd-balanced"
  size       = var.weights_gib
  depends_on = [google_project_service.used]
}

resource "google_compute_instance_template" "gpu" {
  name_prefix  = "ec1-gpu-"
  machine_type = var.machine_type

  disk {
    boot         = true
    source_image = var.image
    disk_type    = "pd-balanced"
    disk_size_gb = var.boot_gib
  }

  disk {
    # By name: in each zone the one there.
    source      = "ec1-weights"
    device_name = "ec1-weights"
    mode        = "READ_ONLY"
    auto_delete = false
  }

  network_interface {
    network = google_compute_network.ec1.id

    # An address to reach the registry from. Nothing comes in by it.
    access_config {}
  }

  scheduling {
    provisioning_model          = "SPOT"
    preemptible                 = true
    automatic_restart           = false
    on_host_maintenance         = "TERMINATE"
    instance_termination_action = "STOP"
  }

  service_account {
    email  = google_service_account.gpu.email
    scopes = ["cloud-platform"]
  }

  metadata = {
    startup-script          = file(var.startup_script)
    enable-guest-attributes = "TRUE"
  }

  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_compute_disk.weights]
}
