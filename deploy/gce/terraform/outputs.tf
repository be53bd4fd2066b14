output "deployment" {
  description = "for the deployment's file; machine.daily_cost is yours to set"
  value = yamlencode({
    store = { kind = "gcs", bucket = google_storage_bucket.store.name }
    machine = {
      kind        = "gce"
      project     = var.project
      zones       = var.zones
      engine_port = var.engine_port
      template    = google_compute_instance_template.gpu.id
    }
  })
}

output "ec1_account" {
  description = "service account of the machine that EC1 runs on"
  value       = google_service_account.ec1.email
}

output "image" {
  description = "name to push the GPU machine's image under"
  value       = "${var.region}-docker.pkg.dev/${var.project}/${google_artifact_registry_repository.ec1.repository_id}/ec1-gpu"
}
